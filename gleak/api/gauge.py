"""Cheap measurements of what one client's update reveals, for every round of a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
import torch
from torch import Tensor, nn

from gleak.api import tensors
from gleak.api.attack_setting import Setting
from gleak.api.broadcast_model import audit_examined
from gleak.api.gauged_members import told_members
from gleak.api.given_specs import ClientLike, averaging_client, client_of, with_client
from gleak.api.scoring import private_samples
from gleak.api.tensors import ArrayLike, Labels, ShapeLike, tensor_of
from gleak.api.user_network import examine, own_modes, prepared_copy
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.attacks.best import Best
from gleak.attacks.cpa_edges import CPAEdges
from gleak.attacks.first_layer import Aono
from gleak.attacks.matching.label_inference import inferred_labels, labels_of_samples
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.observation import Observation
from gleak.attacks.spear import Spear
from gleak.captures.frameworks.observers import ALARMS, EXPLAINED, LABELS, RECOVERED
from gleak.core.errors import ArtifactError, IncompatibleError, SpecError
from gleak.core.spec import changed
from gleak.metrics.recovery import SuccessContent
from gleak.metrics.score import match_to_truth
from gleak.models.examination import check_differentiable
from gleak.models.parameters import (
    as_inputs,
    independent_copy,
    trained_parameters,
    without_prefix,
)
from gleak.simulation.victims import relative_error

EXACT = 0.99
"""Share of an update from which the samples behind it count as found."""
ATTACKS: tuple[AttackSpec, ...] = (Aono(), Spear(rounds=4), CPAEdges())
"""Those on a dense first layer, the most exact first; SPEAR takes about a second for 32 samples."""
State = Mapping[str, ArrayLike]


class Gauge:
    """Measurement of what the update of one client reveals, cheap enough for every round.

    It runs the audits of the broadcast parameters, the inference of labels, and the attacks on a
    first dense layer (`aono`, `spear`, `cpa_edges`) if the network begins with one. That is a lower
    bound: attacks that take longer may find more, in particular of networks that begin with a
    convolution. It knows no defence: measure before a client's defence changes the update. A call
    gives:

    - ``gleak-alarms``: number of audits that suspect crafted parameters.
    - ``gleak-explained``: 1 minus the relative error of the update that a client would send of the
      reconstructed samples, at least 0; close to 1 if the attack has the samples. It needs no
      truth. 0 if there is no dense first layer or no layer to infer labels from, if one of them is
      frozen, or if the network computes without a graph.
    - with the true samples and others of the client ``gleak-members``, the share of the true ones
      that are told from 99% of the others by `gradient_cosine`, or by `regression` after one step
      on at most 100 samples, whichever finds more, and ``gleak-auc``, the area under the ROC curve.
      They cost a gradient for each of at most 100 samples and 200 others. NaN if there are too
      few others, or samples have no gradient of their own.
    - with the true samples also ``gleak-labels``, the share of their labels that are inferred, and
      ``gleak-recovered``, the share of samples with a mean squared error below 1e-3.

    Args:
        model: network of the clients, for its architecture; its values are not used.
        shape: shape of one sample.
        batch_size: number of samples of a client.
        local_lr: learning rate of a client.
        local_steps: number of its steps.
        client: instead of these numbers the client's spec, such as
            ``"fedavg+batch_size=4+local_lr=0.1+mini_batch=2"``; see `gleak.attack`.

    Raises:
        SpecError: a value is out of range.
        IncompatibleError: the model cannot be examined.

    Example:
        >>> import gleak, torch
        >>> from torch import nn
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))
        >>> gauge = gleak.Gauge(model, shape=(3, 8, 8), batch_size=2, local_lr=0.1)
        >>> images, labels = torch.rand(2, 3, 8, 8), torch.tensor([0, 3])
        >>> before = {name: value.clone() for name, value in model.state_dict().items()}
        >>> nn.functional.cross_entropy(model(images), labels).backward()
        >>> torch.optim.SGD(model.parameters(), lr=0.1).step()
        >>> found = gauge(before, model.state_dict(), (images, labels))
        >>> {name: round(value, 2) for name, value in found.items()}
        {'gleak-alarms': 0.0, 'gleak-explained': 1.0, 'gleak-labels': 1.0, 'gleak-recovered': 1.0}
    """

    @with_client("local_lr", "local_steps")
    @own_modes()
    def __init__(
        self,
        model: nn.Module,
        shape: ShapeLike,
        batch_size: SupportsIndex | None = None,
        local_lr: SupportsFloat | None = None,
        local_steps: SupportsIndex = 1,
        *,
        client: ClientLike | None = None,
    ) -> None:
        self.model = model
        self._shape = tensors.checked_shape(shape)
        if client is None:
            self._client = averaging_client(batch_size, local_lr, local_steps)
        else:
            if local_lr is not None or local_steps != 1:
                raise SpecError("local_lr, local_steps: fields of the client; give them there")
            self._client = client_of(client, batch_size, weights=True)
        copied = prepared_copy(model)
        self._classes = examine(copied, self._shape)
        try:
            check_differentiable(copied, self._shape)
            self._has_derivative = True
        except IncompatibleError:  # It computes without a graph, so its first layer has none.
            self._has_derivative = False

    @own_modes()
    def __call__(
        self,
        before: State,
        after: State,
        truth: tuple[ArrayLike, Labels] | None = None,
        others: tuple[ArrayLike, Labels] | None = None,
    ) -> dict[str, float]:
        """Measure one update.

        Args:
            before: state dict that was broadcast.
            after: state dict of the client after training.
            truth: inputs with values in [0, 1], Shape (N, *shape), and labels, Shape (N); None:
                unknown.
            others: inputs and labels of other samples of the client, which are not in the update;
                those that equal one of the truth do not count. They need the truth.

        Returns:
            Values by name; the same names in every call with, or without, the truth and others.

        Raises:
            ArtifactError: the states are not those of the model, or values are not finite; invalid
                samples.
        """
        before, after = (without_prefix(state, self.model) for state in (before, after))
        network = self._network(before)
        setting = Setting(independent_copy(network), self._shape, self._classes, self._client)
        sent = _difference(network, before, after)
        update = setting.update(sent)
        observation = setting.observe(Best(), update, {}, {}, seed=0)
        size = self._client.batch_size
        samples = None if truth is None else self._checked(truth, "truth", size)
        alarms = audit_examined(network, self._shape, self._classes, samples).alarms
        results = self._reconstruct(network, observation, sent)
        explained = max((share for _, share in results), default=0.0)
        measures = {ALARMS: float(len(alarms)), EXPLAINED: explained}
        if samples is not None:
            measures[LABELS] = _shared_labels(samples[1], labels_of(observation).cpu())
            private = private_samples(*samples)
            recovered = [
                SuccessContent().measure(match_to_truth(private, found)) for found, _ in results
            ]
            measures[RECOVERED] = max(map(float, map(np.nanmean, recovered)), default=0.0)
        if others is not None:
            if samples is None:
                raise ArtifactError("others: give the truth, which they are compared with, too")
            known = self._checked(others, "others", size=None)
            measures |= told_members(observation, samples, known, self._has_derivative)
        return measures

    @own_modes()
    def alarms(self, state: State) -> list[str]:
        """Audit parameters that were received, before training on them.

        Args:
            state: state dict that was broadcast.

        Returns:
            Names of the audits that raise an alarm (`gleak.audit`), without samples.

        Raises:
            ArtifactError: it is not a state of the model.
        """
        network = self._network(without_prefix(state, self.model))
        return audit_examined(network, self._shape, self._classes).alarms

    def _network(self, state: State) -> nn.Module:
        """Return a copy of the network with the broadcast values."""
        network = prepared_copy(self.model)
        _check_state("before", state)
        try:
            network.load_state_dict({k: tensor_of(f"before: {k}", v) for k, v in state.items()})
        except RuntimeError as error:
            raise ArtifactError(f"before: not a state dict of the gauge's model: {error}") from None
        return network

    def _checked(
        self, given: tuple[ArrayLike, Labels], name: str, size: int | None
    ) -> tuple[Tensor, Tensor]:
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise ArtifactError(f"{name}: expected the pair of inputs and labels of the client")
        inputs, labels = given
        samples = tensors.checked_inputs(inputs, self._shape)
        if size is not None and len(samples) != size:
            raise ArtifactError(
                f"{name}: {len(samples)} samples, but the gauge was made for batch_size="
                f"{self._client.batch_size}; give all samples of the client"
            )
        return samples, tensors.checked_labels(labels, len(samples), self._classes)

    def _reconstruct(
        self, network: nn.Module, observation: Observation, sent: Mapping[str, np.ndarray]
    ) -> list[tuple[Reconstruction, float]]:
        """Return what each attack finds, and the share of the update that it explains."""
        results: list[tuple[Reconstruction, float]] = []
        if not (self._has_derivative and labels_of(observation).numel()):
            return results
        for attack in ATTACKS:
            try:
                attack.check_observation(observation)
            except IncompatibleError:
                continue
            found = attack.reconstruct(observation)
            results.append((found, self._explained(network, observation, sent, found)))
            if results[-1][1] > EXACT:
                break
        return results

    def _explained(
        self,
        network: nn.Module,
        observation: Observation,
        sent: Mapping[str, np.ndarray],
        found: Reconstruction,
    ) -> float:
        """Compute the share of the update that a client with the found samples would send."""
        inputs = as_inputs(network, found.inputs[0])
        run = self._client.run(network)
        labels = labels_of_samples(observation, found.inputs, found.labels)[0].to(inputs.device)
        update = changed(self._client, {"augmentation": None}).compute(run, inputs, labels)
        computed = {name: value.detach().cpu() for name, value in update.items()}
        observed = {name: torch.from_numpy(value)[None] for name, value in sent.items()}
        return max(0.0, 1 - relative_error(computed, observed))


def labels_of(observation: Observation) -> Tensor:
    """Return the inferred labels; Shape (N), empty if the network has no layer to infer from."""
    try:
        return inferred_labels("auto", observation, mean_gradients(observation))[0]
    except IncompatibleError:
        return torch.empty(0, dtype=torch.long)


def _difference(network: nn.Module, before: State, after: State) -> dict[str, np.ndarray]:
    """Return the trained parameters after training minus those before."""
    trained = trained_parameters(network)
    _check_state("after", after)
    changes = {}
    for name, parameter in trained.items():
        if name not in after:
            raise ArtifactError(f"after: {name} is missing; give the state dict after training")
        value = tensor_of(f"after: {name}", after[name])
        if value.shape != parameter.shape:
            raise ArtifactError(
                f"after: {name} has shape {tuple(value.shape)}, but in the gauge's model "
                f"{tuple(parameter.shape)}; give the state dict of the same network"
            )
        changes[name] = value - tensor_of(f"before: {name}", before[name])
    return {name: change.to(trained[name].dtype).numpy() for name, change in changes.items()}


def _check_state(place: str, state: Any) -> None:
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise ArtifactError(f"{place}: not a state dict, which has arrays by name")


def _shared_labels(true: Tensor, inferred: Tensor) -> float:
    """Return the share of the true labels that are among the inferred ones, with multiplicity."""
    length = int(max(true.max(), *inferred, 0)) + 1
    counts = (torch.bincount(labels[labels >= 0], minlength=length) for labels in (true, inferred))
    return float(torch.minimum(*counts).sum()) / len(true)
