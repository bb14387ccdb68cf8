"""Journal of a rehearsal: one step of every training and search, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from typing_extensions import override

from gleak.runtime.checkpointing import Journal, Part, State


class SingleSteps(Journal):
    """Journal whose parts take one step; snapshots would take most of a rehearsal's memory."""

    keeps_images: ClassVar[bool] = False

    @override
    def part(self, name: str = "") -> Part:
        return SingleStep(self, name)

    @override
    def keep(self, prefix: str, state: State) -> None:
        """Store nothing."""


class SingleStep(Part):
    """Part of one step, whatever its work says about the end, since that depends on values."""

    @override
    def steps(self, unfinished: Callable[[], bool], state: Callable[[], State]) -> Iterator[None]:
        yield
