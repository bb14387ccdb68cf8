"""No defence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.artifacts.encodings import Dense, Encoded
from gleak.core.registry import register
from gleak.defenses.base import DefenseSpec, Memory

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("none")
class NoDefense(DefenseSpec):
    """The update is sent as it was computed."""

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        return {name: Dense(value.numpy()[None]) for name, value in update.items()}
