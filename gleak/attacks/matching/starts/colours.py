"""Starts of a single colour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.attacks.matching.starts.base import NoisyStart
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register

if TYPE_CHECKING:
    from gleak.data.base import DatasetSpec


class SolidStart(NoisyStart):
    """Base class of starts of one colour over the whole image.

    CPL starts at the colour itself; `NoisyStart` explains the slight noise.
    """

    source: ClassVar[str] = "CPL section 3.1 and Table 4"
    colour: ClassVar[tuple[float, ...]]
    """One value per channel, or a single one for all channels or columns."""

    @override
    def check(self, dataset: DatasetSpec) -> None:
        channels = dataset.shape[0] if dataset.modality == "image" else None
        if len(self.colour) not in (1, channels):
            actual = "a table" if channels is None else f"images of {channels} channel(s)"
            raise IncompatibleError(
                f"start {self} needs images of {len(self.colour)} channels, and {dataset} holds "
                f"{actual}; use start=dark, light, grey or patterned, or a dataset of colour images"
            )

    @override
    def undisturbed(
        self, shape: tuple[int, ...], granted: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:

        sides = len(shape) - 2
        return torch.tensor(self.colour).reshape(-1, *[1] * sides)


@register("dark")
class Dark(SolidStart):
    """All values 0, with slight noise."""

    colour: ClassVar[tuple[float, ...]] = (0.0,)


@register("light")
class Light(SolidStart):
    """All values 1, with slight noise."""

    colour: ClassVar[tuple[float, ...]] = (1.0,)


@register("grey")
class Grey(SolidStart):
    """All values one half, the middle of the range, with slight noise."""

    source: ClassVar[str] = "ours"
    colour: ClassVar[tuple[float, ...]] = (0.5,)


@register("red")
class Red(SolidStart):
    """First of three channels 1, the others 0, with slight noise."""

    colour: ClassVar[tuple[float, ...]] = (1.0, 0.0, 0.0)


@register("green")
class Green(SolidStart):
    """Second of three channels 1, the others 0, with slight noise."""

    colour: ClassVar[tuple[float, ...]] = (0.0, 1.0, 0.0)


@register("blue")
class Blue(SolidStart):
    """Third of three channels 1, the others 0, with slight noise."""

    colour: ClassVar[tuple[float, ...]] = (0.0, 0.0, 1.0)
