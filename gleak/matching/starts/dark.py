"""A start that is dark all over."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.matching.starts.solid import SolidStart


@register("dark")
class Dark(SolidStart):
    """Every value 0, but for slight noise."""

    colour: ClassVar[tuple[float, ...]] = (0.0,)
