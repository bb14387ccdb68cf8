"""A VGG network that a CPU can carry."""

from __future__ import annotations

from gleak.models.base import Normalised
from gleak.models.vgg import DoublingVGG
from gleak.registry import register
from gleak.spec import knob


@register("vgg_small")
class VGGSmall(DoublingVGG):
    """Three stages of two convolutions, twice as wide each time, and one hidden dense layer."""

    source = "ours, after Simonyan and Zisserman 2015"

    width: int = knob(32, "channels of the first stage", source="ours", ge=1)
    hidden: int = knob(512, "neurons of the first dense layer", source="ours", ge=1)
    normalise: Normalised = knob(
        "none", "how images are before the first convolution", source="ours"
    )
