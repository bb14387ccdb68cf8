"""No defence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.artifacts.encodings import Dense, Encoded
from gleak.defenses.base import DefenseSpec, Memory
from gleak.registry import register

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("none")
class NoDefense(DefenseSpec):
    """The update is sent as it was computed."""

    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """See `DefenseSpec.protect`."""
        return {name: Dense(value.numpy()[None]) for name, value in update.items()}
