"""Base classes of model specs."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.spec import Spec, parameter
from gleak.data.base import Modality

Activation = Literal["sigmoid", "tanh", "relu", "leaky_relu"]
Norm = Literal["batch", "none"]
Normalised = Literal["imagenet", "cifar10", "cifar100", "none"]
FirstLayer = Literal["convolution", "dense", "unknown"]
COLOURS = 3


class ModelSpec(Spec):
    """Base class of architectures; their parameters come from a training spec.

    ``first_layer`` is the kind of the layer that takes the samples unchanged, "unknown" if it can
    only be found by building the network. ``user_defined`` is true if nothing is known of the
    network before it is built.
    """

    kind: ClassVar[str] = "model"
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})
    first_layer: ClassVar[FirstLayer] = "convolution"
    user_defined: ClassVar[bool] = False

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
        """Check that the architecture can take samples of a modality and shape.

        Raises:
            IncompatibleError: the modality or the shape is not supported.
        """
        if modality not in self.modalities:
            wanted = " or ".join(sorted(self.modalities))
            raise IncompatibleError(f"model {self} takes {wanted} data, not {modality} data")
        if modality == "image" and min(shape[1:]) < self.smallest_side:
            raise IncompatibleError(
                f"model {self} needs images of {self.smallest_side} pixels or more, not {shape}"
            )


def check_colours(model: ModelSpec, normalised: Normalised, shape: tuple[int, ...]) -> None:
    """Check that images can be normalised by the statistics of RGB channels.

    Args:
        model: spec to name in the error.
        normalised: normalisation of the images.
        shape: of an image.

    Raises:
        IncompatibleError: images are normalised as RGB but do not have three channels.
    """
    if normalised != "none" and shape[0] != COLOURS:
        raise IncompatibleError(
            f"model {model} normalises images of {COLOURS} channels, and these have {shape[0]}; "
            "normalise=none takes any"
        )


class PrecodeNetwork(ModelSpec):
    """Base class of networks that PRECODE can extend (Scheliga et al. 2022; ROG section 5.1).

    With precode=k, a variational block is inserted before the last dense layer: an encoder maps the
    features to means and deviations of k Gaussian values, the client samples the values, and a
    decoder maps them back to features. Encoder and decoder are dense layers without an activation.
    The loss of each sample has beta times the divergence from N(0, I) added (see
    `gleak.models.sample_losses`). Attackers do not know the sampled values; their network is in
    evaluation mode, which uses the means instead. ``dense_bias`` is false if no dense layer outside
    the block has a bias; those of the block have one.
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
    @override
    def hidden_dense(self) -> bool | None:
        """True if there is a variational block, whose layers are dense."""
        return self.precode > 0

    @property
    @override
    def has_dense_bias(self) -> bool:
        """True, too, if there is a variational block."""
        return self.dense_bias or self.precode > 0

    @override
    def first_dense_neurons(self, classes: int | None) -> int | None:
        """Return the outputs of the block's encoder, or of the classifier without a block."""
        return 2 * self.precode or classes

    def dense_multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the multiply-adds of all dense layers, with those of the variational block."""
        return sum(inputs * outputs for inputs, outputs in self._all_dense(shape, classes))

    def dense_parameters(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the parameters of all dense layers, with those of the variational block."""
        layers = self.dense_layers(shape, classes)
        biases = sum(outputs for _, outputs in self._all_dense(shape, classes))
        missing = 0 if self.dense_bias else sum(outputs for _, outputs in layers)
        return self.dense_multiply_adds(shape, classes) + biases - missing

    def _all_dense(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        layers = self.dense_layers(shape, classes)
        features, _ = layers[-1]
        block = [(features, 2 * self.precode), (self.precode, features)] if self.precode else []
        return [*layers, *block]
