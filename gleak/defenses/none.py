"""No defence."""

from __future__ import annotations

from gleak.core.registry import register
from gleak.defenses.base import DefenseSpec


@register("none")
class NoDefense(DefenseSpec):
    """The update is sent as computed."""
