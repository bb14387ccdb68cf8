"""Priors: terms of a search's objective that ask for samples of a kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.data.natural_images import ImagePrior
from gleak.models.batch_norm import (
    InputStatistics,
    batch_norm_passes,
    input_statistics,
    running_statistics,
)

MID, SPREAD = 0.5, 0.3
"""Mean and standard deviation of the values of a table, about those of uniform ones."""
EDGE = 0.03
"""Standard deviation of values outside of [0, 1]."""
BRIGHT, LEVEL, PEAK = 0.1, 0.825, 0.163
"""Share of an image's values that are its brightest ones, the usual mean of these, and the standard
deviation of its logarithm (training images of CIFAR-10)."""
EPSILON = 1e-12
"""Added under roots, whose derivative at zero is infinite."""
StatisticsSource = Literal["running", "granted"]
"""Statistics of batch normalisation that the samples should have: those that the broadcast network
keeps of its training data, or those of the client's batch, if they are granted."""


@dataclass(frozen=True)
class Prior(ABC):
    """Base class of the priors that an attack names in `gleak.attacks.matching.parts.Parts`.

    A subclass computes its term from the samples alone. One that also depends on the network or
    differs between victims implements `of` and `keep` as well.

    Args:
        weight: of the term, which is added to the distance of gradients; 0: left out.
    """

    title: ClassVar[str]
    """Name in the summary of an attack, and in errors."""

    weight: float

    @abstractmethod
    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the term of each victim, without its weight, differentiably; Shape (V).

        From samples that are not clipped, Shape (V, N, C, H, W) or (V, N, F); no victim may
        influence another.
        """

    def of(self, observation: Observation) -> Self:
        """Return the prior of an observation's victims, or raise `IncompatibleError`."""
        return self

    def keep(self, rows: torch.Tensor | slice) -> Self:
        """Return the prior of these victims alone."""
        return self


@dataclass(frozen=True)
class TotalVariation(Prior):
    """Mean absolute difference between neighbours of an image (InvertGrad); zero for tables."""

    title: ClassVar[str] = "total variation"

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        is_images = inputs.ndim == 5  # (V, N, C, H, W)
        return total_variation(inputs) if is_images else inputs.new_zeros(len(inputs))


@dataclass(frozen=True)
class NaturalImages(Prior):
    """Minus the logarithm of the density of natural images (`ImagePrior`), in nats.

    It falls off outside of [0, 1], within about `EDGE`. Where clients clip their update, or noise
    hides its length, the scale of the samples is hardly known: darker images of less contrast would
    then always be more probable. So the density is that of an image whose brightest values are
    scaled to their usual mean, and their mean is log-normal.

    The values of a table are taken to be independent, with the same mean and variance.

    Args:
        weight: see `Prior`.
        images: set by `of`; None for tables.
    """

    title: ClassVar[str] = "prior of natural images"

    images: ImagePrior | None = None

    def of(self, observation: Observation) -> Self:
        return replace(self, images=image_prior(observation))

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.images is None:
            return (inputs - MID).flatten(1).square().sum(1) / (2 * SPREAD**2)
        outside = (inputs - inputs.clamp(0, 1)).flatten(1) / EDGE
        samples = inputs.flatten(2)
        largest = brightness(samples)
        codes = self.images.whitened((samples / largest).flatten(0, 1))
        deviations = (outside, largest.log() / PEAK, codes)
        by_victim = torch.cat([each.reshape(len(inputs), -1) for each in deviations], 1)
        return by_victim.square().sum(1) / 2


def brightness(samples: torch.Tensor) -> torch.Tensor:
    """Compute the mean of the brightest values, relative to the usual one; (..., F) to (..., 1)."""
    count = max(1, int(BRIGHT * samples.shape[-1]))
    return samples.topk(count, -1).values.mean(-1, keepdim=True).clamp_min(EDGE) / LEVEL


def image_prior(observation: Observation) -> ImagePrior | None:
    """Return the prior of natural images of an observation's shape; None for tables."""
    if observation.modality != "image":
        return None
    return ImagePrior.natural(observation.input_shape, next(observation.model.parameters()))


@dataclass(frozen=True)
class BatchNormPrior(Prior):
    """Distance of a batch's statistics from expected ones, in every batch normalisation layer.

    Images of the kind that the network was trained on have statistics similar to its running ones.
    Those of the client's batch are known to a server that receives the network's buffers.

    Args:
        weight: see `Prior`.
        source: of the expected statistics.
        network: as the clients run it; set by `of`.
        expected: for each pass through a batch normalisation layer, in order, the statistics of
            each victim; None where none are known. Set by `of`.
    """

    title: ClassVar[str] = "batch norm prior"

    source: StatisticsSource = "running"
    network: torch.nn.Module | None = None
    expected: Sequence[InputStatistics | None] = ()

    def of(self, observation: Observation) -> Self:
        network, shape = observation.model, observation.input_shape
        check_statistics(network, shape, self.source)
        layers = batch_norm_passes(network, shape)
        if self.source == "running":
            expected = [_running(layer, observation.victims) for layer in layers]
            return replace(self, network=network, expected=expected)
        sizes = [layer.num_features for layer in layers]
        granted = observation.granted["batch_norm_statistics"].unbind(1)
        means, variances = (values.split(sizes, 1) for values in granted)
        expected = list(map(InputStatistics, layers, means, variances))
        return replace(self, network=network, expected=expected)

    def keep(self, rows: torch.Tensor | slice) -> Self:
        kept = [
            known and replace(known, mean=known.mean[rows], variance=known.variance[rows])
            for known in self.expected
        ]
        return replace(self, expected=kept)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the prior of each victim (GradInversion Eq. 8).

        Norms are divided by the square root of the channels, so that layers count alike, and means
        and variances by the expected deviation and variance, so that they have no unit.
        """
        assert self.network is not None, "set by `of`"
        pairs = zip(input_statistics(self.network, inputs), self.expected, strict=True)
        return torch.stack([_distance(actual, known) for actual, known in pairs if known]).mean(0)


def check_statistics(
    network: torch.nn.Module, shape: tuple[int, ...], source: StatisticsSource
) -> None:
    """Check that a network has layers whose statistics can be compared.

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
    known = running_statistics(layer)
    return known and InputStatistics(layer, *(value.expand(victims, -1) for value in known))


def _distance(actual: InputStatistics, expected: InputStatistics) -> torch.Tensor:
    """Compute a layer's distance; Shape (V)."""
    scale = expected.variance + expected.layer.eps
    of_means = ((actual.mean - expected.mean) / scale.sqrt()).square().mean(1)
    of_variances = ((actual.variance - expected.variance) / scale).square().mean(1)
    return (of_means + EPSILON).sqrt() + (of_variances + EPSILON).sqrt()


def total_variation(inputs: torch.Tensor) -> torch.Tensor:
    """Compute the mean absolute difference of neighbours, along height plus width (InvertGrad).

    Shape (V, N, C, H, W) to (V).
    """
    rows = inputs.diff(dim=-2).abs().flatten(1).mean(1)
    return rows + inputs.diff(dim=-1).abs().flatten(1).mean(1)
