"""Attacks on a dense first layer of whose gradient only some values were sent: its completion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Self

import numpy as np
from pydantic import model_validator

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attacker import SearchCost
from gleak.attacks.base import AttackSpec, AttackSummary
from gleak.attacks.cpa_edges import CPAEdges
from gleak.attacks.first_layer import Aono, DenseFirstAttack
from gleak.attacks.next_layer import NextLayer, weight_behind
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.low_rank_completion import (
    LEAST_OF_COLUMNS,
    complete,
    determined_rows,
    determines,
    is_by_column,
    leaves_out_zeros,
    regress,
)
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.layer_search import layer_of_samples

ENOUGH = 1.5
"""Values sent, as a multiple of those that the factors have, above which they are determined."""
BY_SIZE, SLACK = 0.99, 1e-3
"""Share of the values not sent that are at most the least one sent, up to a relative error, above
which the largest values were sent."""
TINY = 1e-30


@register("matrix_completion")
class MatrixCompletion(DenseFirstAttack):
    """An attack on a dense first layer, after the values that were not sent have been completed.

    For N samples the gradients of the layer's weight and bias form a matrix of rank N, G = A X
    (see `gleak.attacks.unmixing.mixtures.Mixture`). The values sent in a sparsified update (`topk`,
    `threshold`, `random_mask`) determine the others if they are several times as many as the
    N (neurons + features) values of A and X. The matrix is completed by alternating least squares
    (`gleak.attacks.unmixing.low_rank_completion`), and ``attack`` is run on the result. A neuron
    that the values sent of it do not determine counts as inactive in a batch; such a pixel follows
    from the others by a prior of images, and so does one whose column a defence has set to zero
    (`soteria`). Rounded and noisy values are fitted as they are.

    If a ReLU and another dense layer follow, and the completion is exact, that layer makes the
    samples exact, too (`gleak.attacks.next_layer`): its weight tells the derivatives of each
    sample, and its gradient the activations, by which pixels follow that the first layer's gradient
    leaves open. A victim has converged if ``attack`` has, and the values sent determine every
    feature (`determines`).
    """

    source = "ours; matrix completion by Jain et al. 2013 and Hastie et al. 2015"

    attack: Annotated[AttackSpec, nested("attack")] = parameter(
        Aono(),
        "attack on the completed gradient; for a batch spear, cpa_edges or cpa_noisy",
        source="ours",
    )
    alternations: int = parameter(300, "of least squares, for one victim", source="ours", ge=1)

    @model_validator(mode="after")
    def _check_attack(self) -> Self:
        needed = [*self.attack.grants, *(spec.name for spec in self.attack.knowledge)]
        if needed or self.attack.crafting or isinstance(self.attack, MatrixCompletion):
            raise ValueError(
                f"attack={self.attack} is not an attack on an update alone; choose aono, spear, "
                "cpa or cpa_edges"
            )
        return self

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        self.attack.check(dataset, model, client)

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        self.attack.check_network(network, shape, classes, client)

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Return what the attack reads, and the weight that takes the layer's activations."""
        own, behind = super().reads(model, input_shape), weight_behind(model, input_shape)
        return own | {behind} if own and behind else own

    def summary(self) -> AttackSummary:
        return self.attack.summary()

    def cost(self) -> SearchCost:
        return self.attack.cost()

    def rehearse(self, observation: Observation) -> None:
        """Complete by one alternation, then rehearse ``attack``."""
        self.attack.rehearse(self._briefly.completed(observation))

    def reconstruct(self, observation: Observation) -> Reconstruction:
        completed = self.completed(observation)
        result = self.attack.reconstruct(completed)
        return replace(
            result,
            inputs=refined(observation, completed, result.inputs),
            converged=result.converged & determined_victims(observation),
        )

    def proposals(self, observation: Observation, evaluations: int) -> Sequence[AttackSpec]:
        """Return it for one sample as it is, and for a batch with attacks that separate samples."""
        self.check_observation(observation)
        if is_whole(observation):
            raise IncompatibleError("needs values that were not sent")
        if observation.batch_size > 1:
            separating = self.model_copy(update={"attack": CPAEdges()})
            with suppress(IncompatibleError):
                separating.attack.check_observation(self._briefly.completed(observation))
                return [separating]
        return [self]

    @property
    def _briefly(self) -> Self:
        """This attack after one alternation, where the values that it computes do not matter."""
        return self.model_copy(update={"alternations": 1})

    def completed(self, observation: Observation) -> Observation:
        """Return the observation with all values of the layer's gradients."""
        if is_whole(observation):
            return observation
        layer = layer_of_samples(observation.model, observation.input_shape)[0]
        values, known = layer_gradient(observation, layer)
        rank, pairs = _matrices(observation, values, known)
        shape = observation.input_shape if observation.modality == "image" else ()
        whole = torch.stack([complete(*pair, rank, self.alternations, shape) for pair in pairs])
        weight, bias = whole.view_as(values).split([values.shape[-1] - 1, 1], -1)
        gradients = {f"{layer}.weight": weight, f"{layer}.bias": bias[..., 0]}
        return replace(
            observation,
            update={**observation.update, **gradients},
            sent={name: mask for name, mask in observation.sent.items() if name not in gradients},
        )


def is_whole(observation: Observation) -> bool:
    """Return True if all values of the layer's gradients were sent."""
    layer = layer_of_samples(observation.model, observation.input_shape)[0]
    is_sent = observation.sent.keys().isdisjoint((f"{layer}.weight", f"{layer}.bias"))
    return is_sent and bool(layer_gradient(observation, layer)[1].all())


def determined_victims(observation: Observation) -> np.ndarray:
    """Return of which victims the values sent determine every feature (`determines`); Shape (V)."""
    layer = layer_of_samples(observation.model, observation.input_shape)[0]
    values, known = layer_gradient(observation, layer)
    rank, pairs = _matrices(observation, values, known)
    determined = torch.tensor([determines(*pair, rank, ENOUGH) for pair in pairs])
    return determined.view(known.shape[:2]).all(1).numpy()


def refined(observation: Observation, completed: Observation, inputs: np.ndarray) -> np.ndarray:
    """Compute samples from their approximations and what the next layer tells of them.

    See `gleak.attacks.next_layer`. Of victims whose samples' derivatives are not exact they are
    returned as they are; Shape (V, N, ...).

    Args:
        observation: what was sent.
        completed: the observation with all values of the layer's gradients.
        inputs: approximate samples.
    """
    if is_whole(observation):
        return inputs
    found = inputs.copy()
    for row, samples in enumerate(inputs):
        victim = observation.of_victim(row)
        if layer := NextLayer.of(victim):
            whole = layer_gradient(completed.of_victim(row), layer.first.name)[0][0, 0].double()
            sent, known = (one[0, 0] for one in layer_gradient(victim, layer.first.name))
            flat = torch.from_numpy(samples).to(whole).flatten(1)
            with suppress(torch.linalg.LinAlgError):
                exact = _refined(layer, whole, sent.double(), known, flat)
                if exact.isfinite().all():
                    found[row] = exact.clamp(0, 1).reshape(samples.shape).float().cpu().numpy()
    return found


def _refined(
    layer: NextLayer,
    whole: torch.Tensor,
    sent: torch.Tensor,
    known: torch.Tensor,
    samples: torch.Tensor,
) -> torch.Tensor:
    """Refine one victim's samples, see `refined`.

    Args:
        layer: behind the first layer.
        whole: the completed gradient of the first layer's weight, and bias; (neurons, F + 1).
        sent: what was sent of it.
        known: which values of it were sent.
        samples: Shape (N, F).
    """
    scaling, told, some = layer.first.scaling, whole.any(1), known.any(0)
    taken = torch.nn.functional.pad(scaling.of_samples(samples), (0, 1), value=1)
    whole = whole.where(some, 0)
    derivatives = layer.separated(whole, whole @ torch.linalg.pinv(taken.where(some, 0)))
    if derivatives is None:
        return samples
    known = known & told[:, None]
    sent = sent.where(known, 0)
    determined = determined_rows(derivatives.slopes, known.T, LEAST_OF_COLUMNS)
    if not determined[-1]:
        return samples
    values, columns = torch.zeros_like(taken), sent.T[determined]
    mask = known.T[determined].double()
    values[:, determined] = regress(columns, mask, derivatives.slopes, TINY).T
    derivatives, taken = derivatives.scaled(values[:, -1]), values / values[:, -1:]
    missing, sent, known = ~determined[:-1], sent[:, :-1], known[:, :-1]
    exact = samples.where(missing, scaling.samples_of(taken[:, :-1]))
    if not missing.any() or missing.all() or layer.first.observation.modality != "image":
        return exact
    most = missing.double().expand_as(exact)
    if not scaling.offset.any() and (scaling.gain > 0).all():
        inputs = scaling.of_samples(exact)
        bound = _upper_bounds(derivatives.slopes[told], inputs, sent[told], known[told], missing)
        most = (bound / scaling.gain.to(bound)).minimum(most)
    return layer.filled_in(exact, derivatives, most, sent, known)


def _upper_bounds(
    slopes: torch.Tensor,
    inputs: torch.Tensor,
    sent: torch.Tensor,
    known: torch.Tensor,
    missing: torch.Tensor,
) -> torch.Tensor:
    """Return bounds of missing inputs of the layer, which are not negative; Shape (N, F).

    If the largest values of the gradient were sent, as those of the other inputs show, the others
    are at most the least of them, and so are those of black pixels (`leaves_out_zeros`). A neuron
    at which the derivatives of all samples have one sign bounds each sample's input.

    Args:
        slopes: derivatives at the neurons; Shape (neurons, N).
        inputs: Shape (N, F).
        sent: gradient of the weight, zero where not sent; Shape (neurons, F).
        known: which values of it were sent; Shape (neurons, F).
        missing: Shape (F).
    """
    least = sent[known].abs().min()
    is_smaller = (slopes @ inputs).abs() <= (1 + SLACK) * least
    others = is_smaller[~known & ~missing].double()
    is_bounded = missing & bool(others.mean() > BY_SIZE)
    if leaves_out_zeros(sent, known) and not is_by_column(known):
        is_bounded |= missing & ~known.any(0)
    alike = slopes.abs().sum(1) <= (1 + SLACK) * slopes.sum(1).abs()
    if not (is_bounded.any() and alike.any()):
        return torch.full_like(inputs, torch.inf)
    sizes, unknown = slopes[alike].abs().T, ~known[alike]
    largest = torch.stack([(one[:, None] * unknown).amax(0) for one in sizes])
    return (least / largest.clamp(min=TINY)).where(is_bounded, torch.inf)


def _matrices(
    observation: Observation, values: torch.Tensor, known: torch.Tensor
) -> tuple[int, Iterable[tuple[torch.Tensor, torch.Tensor]]]:
    """Return the rank of the matrices, and each with what was sent of it, victim by victim."""
    rank = min(observation.batch_size, *values.shape[-2:])
    return rank, zip(values.flatten(0, 1), known.flatten(0, 1), strict=True)


def layer_gradient(observation: Observation, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of a layer's weight and bias, in the last column, and what was sent.

    Columns of zeros were not, where a defence sets columns to zero. Shapes (V, R, neurons, features
    + 1).
    """
    weight, bias = (observation.update[f"{layer}.{part}"] for part in ("weight", "bias"))
    weight_mask = observation.sent.get(f"{layer}.weight", torch.ones_like(weight))
    if observation.protocol.pruning == "columns":
        weight_mask = weight_mask.bool() & (weight != 0).any(-2, keepdim=True)
    bias_mask = observation.sent.get(f"{layer}.bias", torch.ones_like(bias))
    known = torch.cat([weight_mask, bias_mask[..., None]], -1).bool()
    return torch.cat([weight, bias[..., None]], -1), known
