"""Starts of random values."""

from __future__ import annotations

import math
from collections.abc import Mapping

from typing_extensions import override

from gleak.attacks.matching.starts.base import StartSpec
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

NATURAL_MEAN, NATURAL_DEVIATION = 0.47, 0.24


@register("normal")
class Normal(StartSpec):
    """Independent normal values of mean 0 and standard deviation 1, as in DLG."""

    @override
    def draw(
        self,
        shape: tuple[int, ...],
        generator: torch.Generator,
        granted: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:

        return torch.randn(shape, generator=generator, dtype=torch.float32)


@register("natural")
class Natural(Normal):
    """Independent normal values with the mean and deviation of photographs (CIFAR-10).

    An attack that starts at `normal` among images normalised by these statistics starts here.
    """

    source = "InvertGrad's code: mean 0.47, standard deviation 0.24 of all channels of CIFAR-10"

    @override
    def draw(
        self,
        shape: tuple[int, ...],
        generator: torch.Generator,
        granted: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:
        return NATURAL_MEAN + NATURAL_DEVIATION * super().draw(shape, generator, granted)


@register("uniform")
class Uniform(StartSpec):
    """Independent uniform values on [0, 1]."""

    @override
    def draw(
        self,
        shape: tuple[int, ...],
        generator: torch.Generator,
        granted: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:

        return torch.rand(shape, generator=generator, dtype=torch.float32)


@register("patterned")
class Patterned(StartSpec):
    """Random uniform tile, repeated over the image (CPL section 3.1, "patterned")."""

    tiles: int = parameter(2, "tiles along each side", source="CPL Table 4: 2 x 2 and 4 x 4", ge=1)

    @override
    def draw(
        self,
        shape: tuple[int, ...],
        generator: torch.Generator,
        granted: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:
        """Draw tiles; a row of a table repeats its first 1/tiles^2 columns."""

        samples, *sample = shape
        if len(sample) == 1:
            width = math.ceil(sample[0] / self.tiles**2)
            row = torch.rand(samples, width, generator=generator, dtype=torch.float32)
            return row.repeat(1, self.tiles**2)[:, : sample[0]]
        channels, height, width = sample
        corner = (math.ceil(height / self.tiles), math.ceil(width / self.tiles))
        tile = torch.rand(samples, channels, *corner, generator=generator, dtype=torch.float32)
        return tile.repeat(1, 1, self.tiles, self.tiles)[..., :height, :width]
