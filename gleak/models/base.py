"""What every model spec provides."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

from gleak.core.errors import IncompatibleError
from gleak.core.spec import Spec
from gleak.data.base import Modality

if TYPE_CHECKING:
    from torch import nn

Activation = Literal["sigmoid", "tanh", "relu", "leaky_relu"]
Norm = Literal["batch", "none"]
Normalised = Literal["imagenet", "cifar10", "none"]
FirstLayer = Literal["convolution", "dense", "unknown"]
COLOURS = 3


class ModelSpec(Spec):
    """An architecture; its parameters come from a training spec.

    ``first_layer`` is the kind of layer that takes the samples as they are; "unknown" where only
    the network itself tells. ``user_defined`` says that nothing is known of it before it is built.
    """

    kind: ClassVar[str] = "model"
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})
    first_layer: ClassVar[FirstLayer] = "convolution"
    user_defined: ClassVar[bool] = False

    @property
    def hidden_dense(self) -> bool | None:
        """Whether dense layers stand before the classifier; None: only the network tells."""
        return False

    @property
    def smallest_side(self) -> int:
        """The shortest height or width of an image that leaves every layer something."""
        return 1

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The network that maps Shape (N, *shape) in [0, 1] to logits, Shape (N, classes)."""

    @abstractmethod
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Multiply-adds of one sample's forward pass, for estimates of cost."""

    @abstractmethod
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        """Number of values that are trained, for estimates of size."""

    def first_dense_neurons(self, classes: int | None) -> int | None:
        """Neurons of the first dense layer, which is the classifier here; None: unknown."""
        return classes

    def check(self, modality: Modality, shape: tuple[int, ...]) -> None:
        """Refuse samples the architecture cannot take.

        Raises:
            IncompatibleError: the wrong modality or a shape it cannot serve.
        """
        if modality not in self.modalities:
            wanted = " or ".join(sorted(self.modalities))
            raise IncompatibleError(f"model {self} takes {wanted} data, not {modality} data")
        if modality == "image" and min(shape[1:]) < self.smallest_side:
            raise IncompatibleError(
                f"model {self} needs images of {self.smallest_side} pixels or more, not {shape}"
            )


def check_colours(model: ModelSpec, normalised: Normalised, shape: tuple[int, ...]) -> None:
    """Refuse channels that the means of colours are not of.

    Args:
        model: named in the error.
        normalised: how it has its images.
        shape: of an image.

    Raises:
        IncompatibleError: they are normalised as colours, and there are not three channels.
    """
    if normalised != "none" and shape[0] != COLOURS:
        raise IncompatibleError(
            f"model {model} normalises images of {COLOURS} channels, and these have {shape[0]}; "
            "normalise=none takes any"
        )
