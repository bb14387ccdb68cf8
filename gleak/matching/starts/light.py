"""A start that is light all over."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.matching.starts.solid import SolidStart


@register("light")
class Light(SolidStart):
    """Every value 1, but for slight noise."""

    colour: ClassVar[tuple[float, ...]] = (1.0,)
