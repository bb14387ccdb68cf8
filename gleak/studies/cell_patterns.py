"""Cells of a grid that a study names by the specs of some of their levels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gleak.core.errors import SpecError, error_context, nearest
from gleak.core.spec import Spec
from gleak.studies.axis_values import Value, Variants
from gleak.studies.cell import Cell
from gleak.studies.study_file import NoBetterThanBlind

Row = Mapping[str, Value]
"""Value of each level of a cell."""


@dataclass(frozen=True)
class Weak:
    """Cells whose attack is declared to be no better than the blind control.

    Args:
        cells: that the declaration matches.
        specs: level -> the spec that these cells have in common, of the levels it names.
        reason: why no budget of this scale makes the attack better.
    """

    cells: frozenset[Cell]
    specs: Mapping[str, Spec]
    reason: str


def cell_of(row: Row) -> Cell:
    """Return the cell of a row."""
    return Cell({level: value.spec for level, value in row.items()})


def matching(rows: Sequence[Row], texts: Mapping[str, str], variants: Variants) -> list[Row]:
    """Return the rows that have all of some specs.

    Args:
        rows: of a grid; not empty.
        texts: level -> the name of a variant, or a spec at this or the paper's scale.
        variants: of the study.

    Raises:
        SpecError: a level is unknown, or no row matches, which is mostly a slip.
    """
    wanted = {check_level(level, rows[0]): text for level, text in texts.items()}
    specs = {level: variants.spec(level, text) for level, text in wanted.items()}
    found = [row for row in rows if all(_is(row[lv], wanted[lv], specs[lv]) for lv in wanted)]
    if not found:
        raise SpecError("matches no cell; correct it, or override it at this scale")
    return found


def check_level(level: str, known: Collection[str]) -> str:
    """Return a level that is among the known ones.

    Raises:
        SpecError: it is not; names the nearest.
    """
    if level not in known:
        raise SpecError(f"unknown level {level!r}; {nearest(level, known)}")
    return level


def read_weak(
    rows: Sequence[Row], written: Sequence[NoBetterThanBlind], variants: Variants, where: str
) -> tuple[Weak, ...]:
    """Return the cells of each declaration.

    Args:
        rows: of the grid's attacks, controls left out.
        written: the declarations of the study file.
        variants: of the study.
        where: put before an error.

    Raises:
        SpecError: a declaration matches no cell, or one that another matches, too.
    """
    found: list[Weak] = []
    for each in written:
        with error_context(f"{where}, no_better_than_blind {each.cells}"):
            matched = matching(rows, each.cells, variants)
            cells = frozenset(map(cell_of, matched))
            if twice := [cell for other in found for cell in other.cells & cells]:
                raise SpecError(f"{twice[0]} is declared twice; one reason is enough")
            specs = {level: matched[0][level].spec for level in each.cells}
            found.append(Weak(cells, specs, each.reason))
    return tuple(found)


def _is(value: Value, text: str, spec: Spec) -> bool:
    """Return True if a text is the name of a value, or its spec at this or the paper's scale."""
    return text == value.variant or spec in (value.spec, value.base, value.original)
