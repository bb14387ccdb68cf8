"""Codes of samples, the unknowns of a search: pixels, small images, codes of an autoencoder."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter
from gleak.data.base import DatasetSpec


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
        return BicubicCoder(self.scale, observation.input_shape)


@dataclass(frozen=True)
class BicubicCoder:
    """Coder by bicubic interpolation of images of a shape (C, H, W); ``scale`` divides sides."""

    scale: int
    shape: tuple[int, ...]

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        small = torch.nn.functional.interpolate(
            images, size=self._sides, mode="bicubic", antialias=True, align_corners=False
        )
        return small.flatten(1)

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        small = codes.unflatten(1, (self.shape[0], *self._sides))
        return torch.nn.functional.interpolate(
            small, size=self.shape[1:], mode="bicubic", align_corners=False
        )

    @property
    def _sides(self) -> tuple[int, ...]:
        return tuple(side // self.scale for side in self.shape[1:])


class Learned(CodeSpec):
    """Code of the attack's autoencoder; it has no registered name, because the codec has one."""

    def coder(self, observation: Observation) -> Coder:
        coder: Any = observation.knowledge["codec"]
        return coder
