"""Cells that are left out before any job, because their specs do not fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.experiments.axis_labels import BLIND
from gleak.experiments.cell import LEVELS, TRUTH, Cell


@dataclass(frozen=True)
class Refusal:
    """A cell that no job is run for.

    Args:
        levels: the spec of each level as the rows of scores have it, see `levels_of`.
        reason: what does not fit together.
    """

    levels: Mapping[str, str]
    reason: str

    @property
    def row(self) -> dict[str, str]:
        """What a table of scores says of it."""
        return {**self.levels, "reason": self.reason}

    def __str__(self) -> str:
        return f"{'/'.join(filter(None, self.levels.values()))}: {self.reason}"


def levels_of(cell: Cell) -> dict[str, str]:
    """The spec of each level of a cell; empty for one that it does not have."""
    texts = cell.strings()
    return {level: texts.get(level, "") for level in LEVELS}


def levels_of_truth(cell: Cell) -> dict[str, str]:
    """As `levels_of`, for the truth behind a cell that is cut short after the defence."""
    return {**levels_of(cell), "attack": TRUTH}


def unchecked(texts: Mapping[str, str]) -> Cell:
    """The cell of spec strings, whether or not these fit together.

    Raises:
        SpecError: an unknown or malformed spec.
    """
    return Cell({level: parse(level, texts[level]) for level in LEVELS if level in texts})


def sift(
    cells: Iterable[Cell], levels: Callable[[Cell], dict[str, str]], check: Callable[[Cell], None]
) -> tuple[list[Cell], list[Refusal]]:
    """The cells that pass a check, and refusals of the others.

    Args:
        cells: all.
        levels: what the rows of a cell say of it.
        check: raises a `IncompatibleError`.
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
    """Refuse a grid of which controls alone are left.

    Raises:
        IncompatibleError: with the reason of the first refusal.
    """
    if refused and all(cell.strings().get("attack") == BLIND for cell in cells):
        raise IncompatibleError(f"{refused[0].reason}; so no cell is left")
