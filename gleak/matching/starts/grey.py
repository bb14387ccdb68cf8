"""A start that is grey all over."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.matching.starts.solid import SolidStart


@register("grey")
class Grey(SolidStart):
    """Every value one half, between the ends of its range, but for slight noise."""

    source: ClassVar[str] = "ours"
    colour: ClassVar[tuple[float, ...]] = (0.5,)
