"""Prior of images by the statistics of batch normalisation (GradInversion)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.batch_norm import (
    InputStatistics,
    batch_norm_passes,
    input_statistics,
    running_statistics,
)

if TYPE_CHECKING:
    from gleak.attacks.matching.parts import StatisticsSource
    from gleak.attacks.observation import Observation

EPSILON = 1e-12
"""Added under roots, whose derivative at zero is infinite."""


@dataclass(frozen=True)
class BatchNormPrior:
    """Distance of a batch's statistics from expected ones, in every batch normalisation layer.

    A network that was trained with batch normalisation keeps running means and variances of its
    training data. Images of that kind have similar statistics in every layer. The statistics of
    the client's batch are known to a server that receives the network's buffers with the update.

    Args:
        network: as the clients run it.
        expected: for each pass through a batch normalisation layer, in order, the statistics of
            each victim; None where none are known.
    """

    network: torch.nn.Module
    expected: Sequence[InputStatistics | None]

    @classmethod
    def of(cls, observation: Observation, source: StatisticsSource) -> Self:
        """Return the prior of an observation's victims.

        Raises:
            IncompatibleError: see `check_statistics`.
        """
        network, shape = observation.model, observation.input_shape
        check_statistics(network, shape, source)
        layers = batch_norm_passes(network, shape)
        if source == "running":
            return cls(network, [_running(layer, observation.victims) for layer in layers])
        means, variances = (
            observation.granted["batch_norm_statistics"][:, row].split(
                [layer.num_features for layer in layers], 1
            )
            for row in range(2)
        )
        return cls(network, list(map(InputStatistics, layers, means, variances)))

    def keep(self, rows: torch.Tensor | slice) -> Self:
        """Return the prior of these victims alone."""
        kept = [
            each and replace(each, mean=each.mean[rows], variance=each.variance[rows])
            for each in self.expected
        ]
        return replace(self, expected=kept)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the prior of each victim (GradInversion Eq. 8).

        Norms are divided by the square root of the channels, so that layers count alike, and means
        and variances by the expected deviation and variance, so that they have no unit.

        Args:
            inputs: Shape (V, N, C, H, W).

        Returns:
            Shape (V), the mean over layers, differentiable.
        """
        found = input_statistics(self.network, inputs)
        pairs = zip(found, self.expected, strict=True)
        return torch.stack([_distance(one, known) for one, known in pairs if known]).mean(0)


def check_statistics(
    network: torch.nn.Module, shape: tuple[int, ...], source: StatisticsSource
) -> None:
    """Check that a network has layers whose statistics can be compared.

    Args:
        network: in evaluation mode; not changed.
        shape: of a sample.
        source: of the expected statistics.

    Raises:
        IncompatibleError: no batch normalisation layer runs, or none keeps running statistics.
    """
    layers = batch_norm_passes(network, shape)
    if not layers:
        raise IncompatibleError(
            "the prior by batch normalisation needs a network with such layers, and in this one "
            "none runs; use invertgrad, or a network with norm=batch"
        )
    if source == "running" and not any(map(running_statistics, layers)):
        raise IncompatibleError(
            "the prior by batch normalisation needs a network that keeps running statistics, and "
            "no layer of this one does; use statistics=granted, or invertgrad"
        )


def _running(layer: torch.nn.modules.batchnorm._BatchNorm, victims: int) -> InputStatistics | None:
    """Return the running statistics of a layer for each victim."""
    known = running_statistics(layer)
    return known and InputStatistics(layer, *(value.expand(victims, -1) for value in known))


def _distance(found: InputStatistics, expected: InputStatistics) -> torch.Tensor:
    """Compute a layer's distance; Shape (V)."""
    scale = expected.variance + expected.layer.eps
    of_means = ((found.mean - expected.mean) / scale.sqrt()).square().mean(1)
    of_variances = ((found.variance - expected.variance) / scale).square().mean(1)
    return (of_means + EPSILON).sqrt() + (of_variances + EPSILON).sqrt()
