"""Parameters that a server broadcasts: crafted for a network of the user, and audited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from typing import SupportsIndex

import numpy as np
import torch
from torch import Tensor, nn

from gleak.api import tensors, user_network
from gleak.api.given_specs import as_spec
from gleak.api.tensors import (
    ArrayLike,
    Labels,
    Shape,
    ShapeLike,
    checked_seed,
    checked_shape,
    whole_number,
)
from gleak.api.user_network import examine, modality_of, own_modes, prepared_copy
from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model, Secret
from gleak.core.errors import IncompatibleError, SpecError
from gleak.crafting.base import CraftingSpec
from gleak.metrics.audits.alarms import AuditReport, run_audits
from gleak.metrics.audits.base import Broadcast
from gleak.metrics.audits.reference import Reference, read_reference
from gleak.models.broadcast import with_state
from gleak.models.parameters import independent_copy, unwrapped


@dataclass(frozen=True, eq=False, repr=False)
class CraftedModel:
    """Model that a malicious server broadcasts.

    Args:
        model: copy of the model with the crafted parameters, otherwise as it was.
        secret: data that the server keeps, for ``gleak.attack(..., secret=...)``.
        client_parameters: parameters of which the server sends each client of a sum a value of its
            own (``loki``), by name; Shape (clients, *shape), of which the first are those of
            ``model``. Empty if all clients get the same.
    """

    model: nn.Module
    secret: Secret
    client_parameters: Mapping[str, Tensor] = field(default_factory=dict)

    def of_client(self, number: SupportsIndex) -> nn.Module:
        """Return the model that a client of a sum receives, a copy.

        Args:
            number: of the client, from 0. All get the same if ``client_parameters`` is empty.

        Raises:
            SpecError: the number is negative, or there are no parameters for so many clients.
        """
        place = whole_number("number", number)
        if place < 0:
            raise SpecError(f"number = {place}: expected a whole number of at least 0")
        sent = independent_copy(self.model)
        for name, values in self.client_parameters.items():
            if place >= len(values):
                raise SpecError(
                    f"number = {place}: there are parameters for clients 0 to {len(values) - 1}; "
                    "craft a model with more groups of kernels"
                )
            with torch.no_grad():
                unwrapped(sent).get_parameter(name).copy_(values[place])
        return sent

    def __repr__(self) -> str:
        crafting = self.secret.spec.rpartition("/")[2]
        return f"CraftedModel({crafting!r}, {type(self.model).__name__})"


@own_modes()
def craft(
    spec: str | CraftingSpec,
    model: nn.Module,
    shape: ShapeLike = (3, 32, 32),
    *,
    seed: SupportsIndex = 0,
) -> CraftedModel:
    """Craft the parameters of a model as a malicious server does.

    The computation is that of the workflow: equal parameters and seeds give equal results.

    Args:
        spec: crafting, such as ``"mkor"`` or ``"fishing+target=3"`` (see ``gleak list crafting``),
            or its spec object.
        model: network that maps samples with values in [0, 1] to logits; it is not changed.
        shape: shape of one sample, in any sequence.
        seed: seed of the crafting's random numbers, not negative.

    Returns:
        A copy of the model with the crafted parameters, the secret of the server, and what it sends
        to each client of a sum, if that differs (``loki``): ``of_client(number)`` is the model that
        a client receives.

    Raises:
        SpecError: an unknown crafting or field, or a value of another type or out of range.
        IncompatibleError: the model cannot be crafted; names what it lacks.

    Example:
        >>> import gleak, torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.Sigmoid(), nn.Linear(8, 4))
        >>> crafted = gleak.craft("fishing+target=2", model, shape=(3, 4, 4))
        >>> crafted.model[3].bias.tolist().count(100.0)
        3
        >>> images, labels = torch.rand(3, 3, 4, 4), torch.tensor([0, 2, 3])
        >>> gradients = gleak.compute_update(crafted.model, images, labels)
        >>> known = {"shape": (3, 4, 4), "batch_size": 3, "secret": crafted.secret}
        >>> gleak.attack("fishing+iterations=2", crafted.model, gradients, **known).labels
        tensor([2])
    """
    server: CraftingSpec = as_spec("crafting", spec)
    network, shape, seed = prepared_copy(model), checked_shape(shape), checked_seed(seed)
    classes = examine(network, shape)
    server.check(user_network.describe_samples(shape, classes), user_network.GivenNetwork())
    try:
        server.check_network(network, shape, classes)
        values = server.craft_network(network, shape, classes, seed)
    except IncompatibleError as error:
        raise IncompatibleError(f"crafting {server} does not fit the model: {error}") from None
    crafted = independent_copy(model)
    unwrapped(crafted).load_state_dict(network.state_dict())
    own = server.client_parameters(network) or {}
    each = {name: torch.from_numpy(values) for name, values in own.items()}
    return CraftedModel(crafted, Secret(spec=str(server), seed=seed, values=values), each)


@own_modes()
def audit(
    model: nn.Module,
    inputs: ArrayLike | None = None,
    labels: Labels | None = None,
    *,
    shape: ShapeLike | None = None,
    reference: str | PathLike[str] | nn.Module | None = None,
    seed: SupportsIndex = 0,
) -> AuditReport:
    """Test the parameters of a model for signs of crafting, as ``gleak audit`` does.

    Args:
        model: network as it was received; it is not changed.
        inputs: samples of the client with values in [0, 1], Shape (M, *shape): audits then measure
            which weights they reach. None: some audits are not available.
        labels: labels of the samples, Shape (M).
        shape: shape of one sample; by default that of the inputs, else (3, 32, 32).
        reference: architecture that the model is said to be, such as ``"lenet"`` (see ``gleak list
            model``), a ``model.h5``, or a network that the client trusts: layers that it does not
            have raise an alarm. None: nothing is compared.
        seed: seed of the draw of samples, not negative.

    Returns:
        Verdict, worst layer, statistic and limit of each audit; ``alarms`` has the names of the
        audits that raise an alarm.

    Raises:
        SpecError: an invalid shape or seed, only one of inputs and labels, or a reference that is
            neither a file nor an architecture.
        ArtifactError: invalid samples or labels, or a damaged file.
        IncompatibleError: the model does not accept such samples, or lacks a layer of the
            reference.

    Example:
        >>> import gleak, torch
        >>> from torch import Tensor, nn
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))
        >>> gleak.audit(model, shape=(3, 8, 8)).alarms
        []
        >>> crafted = gleak.craft("fishing", model, shape=(3, 8, 8)).model
        >>> gleak.audit(crafted, shape=(3, 8, 8)).alarms
        ['audit_bias']
    """
    if (inputs is None) != (labels is None):
        raise SpecError("give samples as inputs and labels, or neither")
    given, seed = None if shape is None else checked_shape(shape), checked_seed(seed)
    samples = None if inputs is None else tensors.checked_inputs(inputs, given)
    shape = given or ((3, 32, 32) if samples is None else tuple(samples.shape[1:]))
    network = prepared_copy(model)
    classes = examine(network, shape)
    known = None
    if samples is not None:
        known = samples, tensors.checked_labels(labels, len(samples), classes)
    return audit_examined(network, shape, classes, known, seed, reference)


def audit_examined(
    network: nn.Module,
    shape: Shape,
    classes: int,
    samples: tuple[Tensor, Tensor] | None = None,
    seed: int = 0,
    reference: str | PathLike[str] | nn.Module | None = None,
) -> AuditReport:
    """Audit a prepared network that was examined, with checked inputs and labels if given."""
    single = independent_copy(network).float().cpu()
    empty = Model(
        modality=modality_of(shape),
        classes=classes,
        input_shape=np.array(shape),
        parameters={},
        buffers={},
        train_loss=np.empty(0),
        test_accuracy=np.empty(0),
    )
    data = None
    if samples is not None:
        inputs, labels = (values.numpy() for values in samples)
        data = Dataset(
            spec="of the client",
            modality=modality_of(shape),
            train_inputs=inputs,
            train_labels=labels,
            test_inputs=inputs[:0],
            test_labels=labels[:0],
            class_names=np.arange(classes).astype(str),
        )
    received, expected = with_state(empty, single), None
    if isinstance(reference, nn.Module):
        expected = Reference.of_network(unwrapped(reference), type(reference).__name__)
    elif reference is not None:
        expected = read_reference(str(reference), received)
    build = partial(independent_copy, single)
    return run_audits(Broadcast(received, data, seed, build, expected))
