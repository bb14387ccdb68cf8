"""The VGG network of seven layers."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Normalised
from gleak.models.vgg import DoublingVGG


@register("vgg7")
class VGG7(DoublingVGG):
    """VGG-7: six convolutions in three stages, a hidden dense layer of 1,024 and the classifier.

    ROG says no more than that it has seven layers and 3 x 3 kernels. The widths are our reading:
    those of the network that quantisation is tried on under this name, in which the classifier does
    not count. Its last stage leaves 4 x 4 positions of a CIFAR image; larger images are averaged to
    as many, else the dense layer would have 134 million weights at 128 x 128.
    """

    source = "ROG section 4.2 and Appendix D; Li et al. 2016, Ternary weight networks, section 3"
    pooled: ClassVar[int | None] = 4

    width: int = parameter(128, "channels of the first stage", source="Li et al. 2016", ge=1)
    hidden: int = parameter(1024, "neurons of the first dense layer", source="Li et al. 2016", ge=1)
    normalise: Normalised = parameter(
        "none", "how images are before the first convolution", source="ours: ROG names none"
    )
