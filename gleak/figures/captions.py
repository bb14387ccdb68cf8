"""Captions of the report: what a figure shows and under which conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gleak.figures.base import FigureSpec, Row
from gleak.figures.names import TRUTH

if TYPE_CHECKING:
    from gleak.grid import Grid


def caption(figure: FigureSpec, grid: Grid) -> str:
    """A figure's caption in reStructuredText, with the conditions under which it is made."""
    rows = figure.chosen(grid.names, grid.scored)
    reproduces = f"Reproduces {figure.reproduces}." if figure.reproduces else ""
    sentences = [figure.caption.strip(), reproduces, _conditions(rows, grid)]
    return "\n\n".join(sentence for sentence in sentences if sentence)


def _conditions(rows: Sequence[Row], grid: Grid) -> str:
    cells = [cell for cell in grid.cells if cell.strings() in rows]
    victims = sorted({cell.client.victims for cell in cells})
    values = {
        level: sorted({row[level] for row in rows if row[level] != TRUTH}) for level in rows[0]
    }
    stand_ins = [
        f"``{ours}`` stands in for ``{theirs}``"
        for level, pairs in grid.names.stands_for.items()
        for ours, theirs in pairs.items()
        if ours in values[level]
    ]
    fixed = [f"{level} ``{found[0]}``" for level, found in values.items() if len(found) == 1]
    size = f"Scale *{grid.scale}*: {len(cells)} cells of {' or '.join(map(str, victims))} victims"
    return "; ".join([size, *stand_ins, *fixed]) + "."
