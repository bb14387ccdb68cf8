"""A VGG network that a CPU can carry."""

from __future__ import annotations

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Normalised
from gleak.models.vgg import DoublingVGG


@register("vgg_small")
class VGGSmall(DoublingVGG):
    """Three stages of two convolutions, twice as wide each time, and one hidden dense layer."""

    source = "ours, after Simonyan and Zisserman 2015"

    width: int = parameter(32, "channels of the first stage", source="ours", ge=1)
    hidden: int = parameter(512, "neurons of the first dense layer", source="ours", ge=1)
    normalise: Normalised = parameter(
        "none", "how images are before the first convolution", source="ours"
    )
