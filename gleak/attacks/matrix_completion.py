"""Attacks on a dense first layer of whose gradient only some values were sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attack_summary import AttackSummary
from gleak.attacks.base import AttackSpec
from gleak.attacks.dense_first import Aono, DenseFirstAttack
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.core.registry import nested, register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec

ENOUGH = 1.5
"""Values sent, as a multiple of those that the factors have, above which they are determined."""


@register("matrix_completion")
class MatrixCompletion(DenseFirstAttack):
    """An attack on a dense first layer, after the values that were not sent have been completed.

    For N samples the gradients of the layer's weight and bias form a matrix of rank N, G = A X
    (see `gleak.attacks.unmixing.mixtures.Mixture`). The values sent in a sparsified update (`topk`,
    `threshold`, `random_mask`) determine the others if they are several times as many as the
    N (neurons + features) values of A and X. The matrix is completed by alternating least squares
    (`gleak.attacks.unmixing.alternating_least_squares`), and ``attack`` is run on the result. A
    neuron or feature of which fewer than N values were sent is not determined: its values are
    close to zero. Rounded and noisy values are fitted as they are. A victim has converged if
    ``attack`` has, and the values sent determine every feature
    (`gleak.attacks.unmixing.alternating_least_squares.determines`).
    """

    source = "ours; matrix completion by Jain et al. 2013 and Hastie et al. 2015"

    attack: Annotated[AttackSpec, nested("attack")] = parameter(
        Aono(), "attack on the completed gradient; for a batch spear or cpa_edges", source="ours"
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

    @override
    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        self.attack.check(dataset, model, client)

    @override
    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """Check that the first and the last layer are dense, and the network fits ``attack``."""
        super().check_network(network, shape, classes, client)
        self.attack.check_network(network, shape, classes, client)

    @override
    def traits(self) -> AttackSummary:
        return self.attack.traits()

    @property
    @override
    def evaluations(self) -> int:
        return self.attack.evaluations

    @property
    @override
    def passes(self) -> int:
        return self.attack.passes

    @override
    def rehearse(self, observation: Observation) -> None:
        """Complete by one alternation, then rehearse ``attack``."""
        short = self.model_copy(update={"alternations": 1})
        self.attack.rehearse(short.completed(observation))

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:

        from gleak.attacks.first_layer import dense_layer_of_samples
        from gleak.attacks.unmixing.alternating_least_squares import determines

        found = self.attack.reconstruct(self.completed(observation))
        layer = dense_layer_of_samples(observation.model, observation.input_shape)
        values, known = layer_gradient(observation, layer)
        rank = min(observation.batch_size, *values.shape[-2:])
        pairs = zip(values.flatten(0, 1), known.flatten(0, 1), strict=True)
        determined = torch.tensor([determines(*pair, rank, ENOUGH) for pair in pairs])
        every = determined.view(known.shape[:2]).all(1).numpy()
        return replace(found, converged=found.converged & every)

    def completed(self, observation: Observation) -> Observation:
        """Return the observation with all values of the layer's gradients."""

        from gleak.attacks.first_layer import dense_layer_of_samples
        from gleak.attacks.unmixing.alternating_least_squares import complete

        layer = dense_layer_of_samples(observation.model, observation.input_shape)
        values, known = layer_gradient(observation, layer)
        if observation.sent.keys().isdisjoint((f"{layer}.weight", f"{layer}.bias")):
            return observation
        rank = min(observation.batch_size, *values.shape[-2:])
        pairs = zip(values.flatten(0, 1), known.flatten(0, 1), strict=True)
        whole = torch.stack([complete(*pair, rank, self.alternations) for pair in pairs])
        weight, bias = whole.view_as(values).split([values.shape[-1] - 1, 1], -1)
        gradients = {f"{layer}.weight": weight, f"{layer}.bias": bias[..., 0]}
        return replace(
            observation,
            update={**observation.update, **gradients},
            sent={name: mask for name, mask in observation.sent.items() if name not in gradients},
        )


def determines_layer(observation: Observation, layer: str) -> bool:
    """Return True if every victim sent enough values of a layer to complete its gradients.

    For N samples their factors have N (neurons + features) values. At least half as many again are
    required: with fewer, other matrices of rank N have the same values.

    Args:
        observation: has updates of the layer's weight and bias.
        layer: name of the layer.
    """
    _, known = layer_gradient(observation, layer)
    values = observation.batch_size * sum(known.shape[-2:])
    return bool((known.flatten(2).sum(2) >= ENOUGH * values).all())


def layer_gradient(observation: Observation, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of a dense layer's weight and bias as one matrix, and what was sent.

    Args as for `determines_layer`.

    Returns:
        Shapes (V, R, neurons, features + 1), the bias last; the second is True where a value was
        sent.
    """

    weight, bias = (observation.update[f"{layer}.{name}"] for name in ("weight", "bias"))
    masks = [
        observation.sent.get(f"{layer}.{name}", value.new_ones(value.shape).bool())
        for name, value in (("weight", weight), ("bias", bias))
    ]
    values = torch.cat([weight, bias[..., None]], -1)
    return values, torch.cat([masks[0], masks[1][..., None]], -1).bool()
