"""Base classes of model specs, and what several architectures are built of."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.spec import Spec, parameter
from gleak.data.base import Modality

Activation = Literal["sigmoid", "tanh", "relu", "leaky_relu"]
Norm = Literal["batch", "none"]
Normalised = Literal["imagenet", "cifar10", "cifar100", "none"]
FirstLayer = Literal["convolution", "dense", "unknown"]
COLOURS = 3
ACTIVATIONS: dict[str, str] = {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "relu": "ReLU",
    "leaky_relu": "LeakyReLU",
}
"""Classes of torch by the value of an `Activation`."""
MEANS_AND_DEVIATIONS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
"""Of intensities in the training sets, for each colour, by the value of a `Normalised`."""


def activation_layer(name: Activation) -> torch.nn.Module:
    layer: torch.nn.Module = getattr(torch.nn, ACTIVATIONS[name])()
    return layer


def normalisation_layers(name: Normalised) -> list[torch.nn.Module]:
    """Return the layer that normalises images, or no layer for "none"."""
    from gleak.models.layers import Normalisation

    return [] if name == "none" else [Normalisation(*MEANS_AND_DEVIATIONS[name])]


def dropout_layers(probability: float) -> list[torch.nn.Module]:
    return [torch.nn.Dropout(probability)] if probability else []


@dataclass(frozen=True)
class Convolution:
    """Square convolution with an odd kernel size.

    If it is padded, only the stride reduces the image, else the kernel stays within the image.
    """

    inputs: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    padded: bool = True

    @property
    def padding(self) -> int:
        """Number of zeros on each side of the image."""
        return self.kernel // 2 if self.padded else 0

    @property
    def weights(self) -> int:
        """Number of weights, without biases."""
        return self.kernel**2 * self.inputs * self.outputs

    def sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        lost = self.kernel - 1 - 2 * self.padding
        return tuple(math.ceil((side - lost) / self.stride) for side in sides)

    def layer(self, *, bias: bool = True) -> torch.nn.Conv2d:
        return torch.nn.Conv2d(
            self.inputs, self.outputs, self.kernel, self.stride, padding=self.padding, bias=bias
        )


Placed = tuple[Convolution, tuple[int, ...]]
"""A convolution, and height and width of its outputs."""


class ModelSpec(Spec):
    """Base class of architectures; their parameters come from a training spec.

    ``first_layer`` is the kind of the layer that takes the samples unchanged, "unknown" if it can
    only be found by building the network.
    """

    kind: ClassVar[str] = "model"
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})
    first_layer: ClassVar[FirstLayer] = "convolution"

    @property
    def user_defined(self) -> bool:
        """True if nothing is known of the network before it is built."""
        return False

    @property
    def hidden_dense(self) -> bool | None:
        """True if there are dense layers before the classifier; None: unknown before building."""
        return False

    @property
    def has_dense_bias(self) -> bool:
        """False if no dense layer has a bias."""
        return True

    @property
    def has_batch_norm(self) -> bool:
        """False if no layer keeps running statistics of batches."""
        return False

    @property
    def smallest_side(self) -> int:
        """Smallest height or width of an image for which no layer's output is empty."""
        return 1

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        """Build the network that maps Shape (N, *shape) in [0, 1] to logits, Shape (N, classes)."""

    @abstractmethod
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the multiply-adds of one sample's forward pass, for cost estimates."""

    @abstractmethod
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the number of trained parameters, for size estimates."""

    def first_dense_neurons(self, classes: int | None) -> int | None:
        """Return the neurons of the first dense layer, by default of the classifier, or None."""
        return classes

    def check(self, modality: Modality, shape: tuple[int, ...]) -> None:
        """Raise `IncompatibleError` if the architecture cannot take samples of this kind."""
        if modality not in self.modalities:
            wanted = " or ".join(sorted(self.modalities))
            raise IncompatibleError(f"model {self} takes {wanted} data, not {modality} data")
        if modality == "image" and min(shape[1:], default=0) < self.smallest_side:
            raise IncompatibleError(
                f"model {self} needs images of {self.smallest_side} pixels or more, not {shape}"
            )
        if getattr(self, "normalise", "none") != "none" and shape[0] != COLOURS:
            raise IncompatibleError(
                f"model {self} normalises images of {COLOURS} channels, and these have {shape[0]}; "
                "normalise=none takes any"
            )


class PrecodeNetwork(ModelSpec):
    """Base class of networks that PRECODE can extend (Scheliga et al. 2022; ROG section 5.1).

    With precode=k, a variational block precedes the last dense layer: a dense layer maps the
    features to means and deviations of k Gaussian values, the client samples them, and another one
    maps them back to features. The loss of each sample has beta times the divergence from N(0, I)
    added (`gleak.models.differentiation.penalties`). Attackers do not know the sampled values;
    their network is in evaluation mode, which uses the means instead. ``dense_bias`` is false if no
    dense layer outside the block has a bias; those of the block have one.
    """

    dense_bias: ClassVar[bool] = True

    precode: int = parameter(
        0,
        "values k sampled before the last dense layer; 0: no variational block",
        source="Scheliga et al. 2022: 256",
        ge=0,
    )
    beta: float = parameter(
        1e-3,
        "weight of the sampled values' divergence from N(0, I) in the loss, with precode",
        unit="1/nat",
        source="Scheliga et al. 2022",
        ge=0,
    )

    @abstractmethod
    def dense_layers(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        """Return inputs and outputs of each dense layer outside the variational block."""

    @property
    def hidden_dense(self) -> bool | None:
        return self.precode > 0

    @property
    def has_dense_bias(self) -> bool:
        return self.dense_bias or self.precode > 0

    def first_dense_neurons(self, classes: int | None) -> int | None:
        """Return the outputs of the block's encoder, or of the classifier without a block."""
        return 2 * self.precode or classes

    def placed_convolutions(self, shape: tuple[int, ...]) -> Iterator[Placed]:
        """Iterate over all convolutions with the sizes of their outputs; by default none."""
        return iter(())

    @property
    def values_per_channel(self) -> int:
        """Trained values per output channel of a convolution, apart from its weights: a bias."""
        return 1

    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the multiply-adds of convolutions and dense layers, without other layers."""
        placed = self.placed_convolutions(shape)
        convolutions = sum(convolution.weights * math.prod(sides) for convolution, sides in placed)
        return convolutions + sum(map(math.prod, self._all_dense(shape, classes)))

    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        convolutions = sum(
            convolution.weights + self.values_per_channel * convolution.outputs
            for convolution, _ in self.placed_convolutions(shape)
        )
        dense = sum((inputs + 1) * outputs for inputs, outputs in self._all_dense(shape, classes))
        if not self.dense_bias:
            dense -= sum(outputs for _, outputs in self.dense_layers(shape, classes))
        return convolutions + dense

    def variational_layers(self, features: int) -> list[torch.nn.Module]:
        """Return the variational block, from features to as many features, or no layer."""
        if not self.precode:
            return []
        from gleak.models.layers import GaussianSample

        parts: dict[str, torch.nn.Module] = {
            "encoder": torch.nn.Linear(features, 2 * self.precode),
            "sample": GaussianSample(self.beta),
            "decoder": torch.nn.Linear(self.precode, features),
        }
        return [torch.nn.Sequential(OrderedDict(parts))]

    def _all_dense(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        layers = self.dense_layers(shape, classes)
        if not self.precode:
            return layers
        features, _ = layers[-1]
        return [*layers, (features, 2 * self.precode), (self.precode, features)]
