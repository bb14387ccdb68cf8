"""Codes of samples, the unknowns of a search: pixels, small images, codes of an autoencoder."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from gleak.attacks.matching.priors import image_prior
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter
from gleak.data.base import DatasetSpec
from gleak.data.natural_images import ImagePrior

ALIGNED = 4
"""Divisor of the sides of matrices that begin at multiples of 64 bytes in a batch."""


class Coder(Protocol):
    """Encoder and decoder between images and codes (ROG Eq. 13)."""

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        """Encode images; Shape (M, C, H, W) to (M, d)."""

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Decode codes, differentiably; Shape (M, d) to (M, C, H, W)."""


class CodeSpec(Spec):
    """Parametrisation of a sample: what a search optimises in place of its values."""

    kind: ClassVar[str] = "code"

    def check(self, dataset: DatasetSpec) -> None:
        """Raise `IncompatibleError` if the samples of a dataset cannot be encoded."""

    def check_network(self, network: torch.nn.Module) -> None:
        """Raise `IncompatibleError` if the network lacks what the code needs."""

    @abstractmethod
    def coder(self, observation: Observation) -> Coder | None:
        """Return the coder of the victims' samples; None if their values are the unknowns."""


@register("pixels")
class Pixels(CodeSpec):
    """Identity: the values of a sample are the unknowns, for tables too."""

    def coder(self, observation: Observation) -> None:
        return None


@register("normalised")
class Normalised(CodeSpec):
    """Values as the network's own normalisation passes them on, in deviations from the mean.

    Starts, boxes and the total variation stay in intensities, and learning rates are in deviations.
    The start `natural` is standard normal here: with it, rates of papers that search normalised
    images apply as printed.
    """

    source = "InvertGrad's code"

    def check(self, dataset: DatasetSpec) -> None:
        if dataset.modality != "image":
            raise IncompatibleError(
                f"code {self} is of images, whose colours networks normalise, not of {dataset}; "
                "use code=pixels"
            )

    def check_network(self, network: torch.nn.Module) -> None:
        normalisation_of(network)

    def coder(self, observation: Observation) -> Coder:
        return NormalisedCoder(*normalisation_of(observation.model), observation.input_shape)


def normalisation_of(network: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and deviation of the network's normalisation layer; Shape (C, 1, 1) each."""
    from gleak.models.layers import Normalisation

    for layer in network.modules():
        if isinstance(layer, Normalisation):
            return layer.mean, layer.deviation
    raise IncompatibleError(
        "code normalised needs a network that normalises its input, and this one has no such "
        "layer; use normalise=cifar10, say, where the model has the field, or code=pixels"
    )


@dataclass(frozen=True)
class NormalisedCoder:
    """Coder of images of a shape (C, H, W) by mean and deviation, Shape (C, 1, 1) each."""

    mean: torch.Tensor
    deviation: torch.Tensor
    shape: tuple[int, ...]

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        return ((images - self.mean) / self.deviation).flatten(1)

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        return codes.unflatten(1, self.shape) * self.deviation + self.mean


@register("whitened")
class Whitened(CodeSpec):
    """Coefficients of a cosine transform, in deviations of natural images; tables as they are.

    A unit step changes every frequency as much as it varies among images (`ImagePrior`), so that a
    search moves along the low frequencies first, which carry most of an image.
    """

    source = "ours"

    def coder(self, observation: Observation) -> Coder | None:
        prior = image_prior(observation)
        return None if prior is None else WhitenedCoder(prior, observation.input_shape)


@dataclass(frozen=True)
class WhitenedCoder:
    """Coder of images of a shape (C, H, W) by a prior of natural images."""

    prior: ImagePrior
    shape: tuple[int, ...]

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        return self.prior.whitened(images.flatten(1))

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        return self.prior.coloured(codes).unflatten(1, self.shape)


@register("bicubic")
class Bicubic(CodeSpec):
    """Small image, enlarged by bicubic interpolation inside the search (ROG section 4.2)."""

    source = "ROG section 4.2"

    scale: int = parameter(4, "divisor of height and width", source="ROG section 4.2", ge=2)

    def check(self, dataset: DatasetSpec) -> None:
        if dataset.modality != "image":
            raise IncompatibleError(
                f"code {self} encodes images only, not {dataset}; use code=pixels"
            )
        if any(side % self.scale for side in dataset.shape[1:]):
            raise IncompatibleError(
                f"code {self} needs height and width divisible by {self.scale}, and images of "
                f"{dataset} have {' x '.join(map(str, dataset.shape[1:]))}; choose another scale "
                "or size"
            )

    def coder(self, observation: Observation) -> Coder:
        like = next(observation.model.parameters())
        return BicubicCoder.of(self.scale, observation.input_shape, like)


@dataclass(frozen=True)
class BicubicCoder:
    """Coder by bicubic interpolation of images.

    It multiplies by matrices, since torch's derivative of interpolation adds in random order on a
    GPU, and takes five times as long on a CPU.

    Args:
        shape: of an image, (C, H, W).
        sides: height and width of a small image.
        reductions: matrices that reduce height and width.
        enlargements: matrices that enlarge them.
    """

    shape: tuple[int, ...]
    sides: tuple[int, ...]
    reductions: tuple[torch.Tensor, ...]
    enlargements: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, scale: int, shape: tuple[int, ...], like: torch.Tensor) -> BicubicCoder:
        """Return the coder whose ``scale`` divides sides, for values like those of a tensor."""
        small = tuple(side // scale for side in shape[1:])
        pairs = list(zip(shape[1:], small, strict=True))
        reductions = [_interpolation(*pair, antialias=True) for pair in pairs]
        enlargements = [_interpolation(*reversed(pair)) for pair in pairs]
        moved = (tuple(one.to(like) for one in each) for each in (reductions, enlargements))
        return cls(shape, small, *moved)

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        return _interpolated(images, self.reductions, self.sides).flatten(1)

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        small = codes.unflatten(1, (self.shape[0], *self.sides))
        return _interpolated(small, self.enlargements, self.shape[1:])


def _interpolation(given: int, wanted: int, **options: bool) -> torch.Tensor:
    """Compute the matrix of bicubic interpolation along a side, extended by zeros.

    Shape (wanted, given), each rounded up to a multiple of `ALIGNED`.
    """
    steps = torch.eye(given, dtype=torch.float64)[None, None]
    (along,) = torch.nn.functional.interpolate(
        steps, (given, wanted), mode="bicubic", align_corners=False, **options
    )
    return torch.nn.functional.pad(along[0].T, (0, -given % ALIGNED, 0, -wanted % ALIGNED))


def _interpolated(
    images: torch.Tensor, matrices: tuple[torch.Tensor, ...], sides: tuple[int, ...]
) -> torch.Tensor:
    """Multiply each channel by the matrices of rows and columns, Shape (M, C, *sides).

    Channels are extended by zeros: the rounding of products on a CPU depends on the alignment of
    their factors in memory, and so on the position of a victim among others.
    """
    height, width = (-side % ALIGNED for side in images.shape[2:])
    channels = torch.nn.functional.pad(images.flatten(0, 1), (0, width, 0, height))
    rows, columns = (one.to(channels).expand(len(channels), -1, -1) for one in matrices)
    changed = rows @ channels @ columns.mT
    return changed[:, : sides[0], : sides[1]].unflatten(0, images.shape[:2])


class Learned(CodeSpec):
    """Code of the attack's autoencoder; it has no registered name, because the codec has one."""

    def coder(self, observation: Observation) -> Coder:
        coder: Any = observation.knowledge["codec"]
        return coder
