"""Starts of a search: the first dummy samples."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter
from gleak.data.base import DatasetSpec

GRANT = "class_sample"
ESTIMATE = "estimate"
"""Name of the samples at which a search continues; Shape (V, N, *shape)."""
Shape = tuple[int, ...]
Grants = Mapping[str, "torch.Tensor"]
INSTEAD = "use a dataset with training samples of every class, or another"


class StartSpec(Spec):
    """First dummy samples of a search."""

    kind: ClassVar[str] = "start"

    @property
    def grants(self) -> frozenset[str]:
        """Names of the grants that the start uses (see `gleak.artifacts.update`)."""
        return frozenset()

    def check(self, dataset: DatasetSpec) -> None:
        """Raise `IncompatibleError` if the start cannot be drawn for samples of a dataset."""

    @abstractmethod
    def draw(self, shape: Shape, generator: torch.Generator, granted: Grants) -> torch.Tensor:
        """Draw the dummy samples of one victim.

        Args:
            shape: (N, C, H, W) or (N, F).
            generator: random stream of the victim, on the CPU so that every device draws the same.
            granted: by grant name, what this victim's setting grants, of those in `grants`.
        """


@register("normal")
class Normal(StartSpec):
    """Independent normal values of mean 0 and standard deviation 1, as in DLG."""

    def draw(self, shape: Shape, generator: torch.Generator, granted: Grants) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float32)


@register("natural")
class Natural(Normal):
    """Independent normal values with the mean and deviation of photographs (CIFAR-10).

    An attack that starts at `normal` among images normalised by these statistics starts here.
    """

    source = "InvertGrad's code: mean 0.47, standard deviation 0.24 of all channels of CIFAR-10"

    def draw(self, shape: Shape, generator: torch.Generator, granted: Grants) -> torch.Tensor:
        return 0.47 + 0.24 * super().draw(shape, generator, granted)


@register("uniform")
class Uniform(StartSpec):
    """Independent uniform values on [0, 1]."""

    def draw(self, shape: Shape, generator: torch.Generator, granted: Grants) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float32)


@register("patterned")
class Patterned(StartSpec):
    """Random uniform tile, repeated over the image (CPL section 3.1, "patterned")."""

    tiles: int = parameter(2, "tiles along each side", source="CPL Table 4: 2 x 2 and 4 x 4", ge=1)

    def draw(self, shape: Shape, generator: torch.Generator, granted: Grants) -> torch.Tensor:
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


class NoisyStart(StartSpec):
    """Base class of starts at given values, moved slightly towards uniform values on [0, 1].

    Without noise a restart would repeat the failed attempt, and samples of one batch with the same
    start and label would have the same gradient in every step and remain equal.
    """

    noise: float = parameter(
        0.01,
        "share of the way to uniform random values",
        source="ours; so that restarts and samples of a batch differ",
        ge=0,
        le=1,
    )

    @abstractmethod
    def undisturbed(self, shape: Shape, granted: Grants) -> torch.Tensor:
        """Return the values in [0, 1] before the noise; they broadcast to ``shape``."""

    def draw(self, shape: Shape, generator: torch.Generator, granted: Grants) -> torch.Tensor:
        values = self.undisturbed(shape, granted)
        drawn = torch.rand(shape, generator=generator, dtype=torch.float32)
        return values + self.noise * (drawn - values)


class Estimate(StartSpec):
    """Samples that an earlier search has found; it has no registered name.

    They are passed on in place of a grant, `ESTIMATE`, in `gleak.attacks.observation.Observation`.
    """

    @property
    def grants(self) -> frozenset[str]:
        return frozenset({ESTIMATE})

    def draw(self, shape: Shape, generator: torch.Generator, granted: Grants) -> torch.Tensor:
        return granted[ESTIMATE]


class SolidStart(NoisyStart):
    """Base class of starts of one colour over the whole image; CPL's have no noise."""

    source: ClassVar[str] = "CPL section 3.1 and Table 4"
    colour: ClassVar[tuple[float, ...]]
    """One value per channel, or a single one for all channels or columns."""

    def check(self, dataset: DatasetSpec) -> None:
        channels = dataset.shape[0] if dataset.modality == "image" else None
        if len(self.colour) not in (1, channels):
            actual = "a table" if channels is None else f"images of {channels} channel(s)"
            raise IncompatibleError(
                f"start {self} needs images of {len(self.colour)} channels, and {dataset} holds "
                f"{actual}; use start=dark, light, grey or patterned, or a dataset of colour images"
            )

    def undisturbed(self, shape: Shape, granted: Grants) -> torch.Tensor:
        return torch.tensor(self.colour).reshape(-1, *[1] * (len(shape) - 2))


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


@register("optimal")
class Optimal(NoisyStart):
    """Granted training sample of each label's class, with slight noise ("insider" of CPL).

    The grant contains one sample for each of the victim's labels in ascending order, which is also
    the order of inferred labels.
    """

    source: ClassVar[str] = "CPL sections 3.1 and 4.2, Table 4"

    @property
    def grants(self) -> frozenset[str]:
        return frozenset({GRANT})

    def check(self, dataset: DatasetSpec) -> None:
        check_training_samples(self, dataset)

    def undisturbed(self, shape: Shape, granted: Grants) -> torch.Tensor:
        samples = granted[GRANT]
        check_granted(self, len(samples))
        return samples


def check_training_samples(spec: Spec, dataset: DatasetSpec) -> None:
    """Raise `IncompatibleError` if a dataset has no training samples to grant to a spec."""
    if dataset.sizes is not None and not dataset.sizes["train"]:
        raise IncompatibleError(
            f"{spec.kind} {spec} uses the grant {GRANT}, a training sample of the class, and "
            f"{dataset} has no training samples; {INSTEAD} {spec.kind}"
        )


def check_granted(spec: Spec, samples: int) -> None:
    """Raise `IncompatibleError` if a victim's class has no training samples."""
    if not samples:
        raise IncompatibleError(
            f"{spec.kind} {spec}: the grant {GRANT} is empty, because the dataset has no "
            f"training sample of some victim's class; {INSTEAD} {spec.kind}"
        )
