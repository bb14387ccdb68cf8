"""Cells that are excluded before any job because their specs are incompatible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.studies.axis_labels import BLIND
from gleak.studies.cell import LEVELS, TRUTH, Cell


@dataclass(frozen=True)
class Refusal:
    """A cell that is excluded from the workflow.

    Args:
        levels: spec of each level as in the rows of scores, see `levels_of`.
        reason: the incompatibility.
    """

    levels: Mapping[str, str]
    reason: str

    @property
    def row(self) -> dict[str, str]:
        """Row of the cell in a table of scores."""
        return {**self.levels, "reason": self.reason}

    def __str__(self) -> str:
        return f"{'/'.join(filter(None, self.levels.values()))}: {self.reason}"


def levels_of(cell: Cell) -> dict[str, str]:
    """Return the spec of each level of a cell; empty for levels that it does not have."""
    texts = cell.strings()
    return {level: texts.get(level, "") for level in LEVELS}


def levels_of_truth(cell: Cell) -> dict[str, str]:
    """Return `levels_of` for the control ``truth`` of a cell truncated after the defence."""
    return {**levels_of(cell), "attack": TRUTH}


def unchecked(texts: Mapping[str, str]) -> Cell:
    """Parse the cell of spec strings without checking that they are compatible.

    Raises:
        SpecError: a spec is unknown or malformed.
    """
    return Cell({level: parse(level, texts[level]) for level in LEVELS if level in texts})


def sift(
    cells: Iterable[Cell], levels: Callable[[Cell], dict[str, str]], check: Callable[[Cell], None]
) -> tuple[list[Cell], list[Refusal]]:
    """Return the cells that pass a check, and refusals of the others.

    Args:
        cells: cells to check.
        levels: returns the spec of each level for the rows of a cell.
        check: raises an `IncompatibleError` for a cell that does not pass.
    """
    kept, refused = [], []
    for cell in cells:
        try:
            check(cell)
            kept.append(cell)
        except IncompatibleError as error:
            refused.append(Refusal(levels(cell), " ".join(str(error).split())))
    return kept, refused


def check_left(cells: Sequence[Cell], refused: Sequence[Refusal]) -> None:
    """Raise an error if only controls of a grid are left.

    Raises:
        IncompatibleError: no cell but controls is left; gives the reason of the first refusal.
    """
    if refused and all(cell.strings().get("attack") == BLIND for cell in cells):
        raise IncompatibleError(f"{refused[0].reason}; so no cell is left")
