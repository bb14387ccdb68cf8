"""A start that is blue all over."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.matching.starts.solid import SolidStart


@register("blue")
class Blue(SolidStart):
    """The third of three channels 1, the others 0, but for slight noise."""

    colour: ClassVar[tuple[float, ...]] = (0.0, 0.0, 1.0)
