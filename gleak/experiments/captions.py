"""Captions of the report, with the conditions of each figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gleak.experiments.cell import TRUTH, Cell
from gleak.experiments.figure_spec import FigureSpec

if TYPE_CHECKING:
    from gleak.experiments.grid import Grid


def caption(figure: FigureSpec, grids: Sequence[Grid]) -> str:
    """Return a figure's caption in reStructuredText, with its experimental conditions.

    Args:
        figure: its spec.
        grids: of its scores, at one scale.
    """
    reproduces = f"Reproduces {figure.reproduces}." if figure.reproduces else ""
    conditions = [
        _conditions(figure.chosen(grid.names, grid.names.cells(grid.scored)), grid)
        for grid in grids
    ]
    sentences = [figure.caption.strip(), reproduces, *conditions]
    return "\n\n".join(sentence for sentence in sentences if sentence)


def _conditions(chosen: Sequence[Cell], grid: Grid) -> str:
    cells = [c for c in chosen if "attack" not in c.specs or c.attack.name != TRUTH]
    victims = sorted({cell.client.victims for cell in cells if "client" in cell.specs})
    values = {
        level: sorted({str(cell.specs[level]) for cell in cells}) for level in grid.names.values
    }
    stand_ins = [
        f"``{ours}`` stands in for ``{theirs}``"
        for level, pairs in grid.names.substituted.items()
        for ours, theirs in pairs.items()
        if str(ours) in values[level] and ours.setting() != theirs.setting()
    ]
    tuned = [
        f"``{ours}`` is ``{base}`` as a search chose it"
        for level, pairs in grid.names.bases.items()
        for ours, base in pairs.items()
        if str(ours) in values.get(level, []) and ours != base
    ]
    fixed = [f"{level} ``{texts[0]}``" for level, texts in values.items() if len(texts) == 1]
    of = f" of {' or '.join(map(str, victims))} victims" if victims else ""
    refused = [each for each in grid.refused if grid.names.cell(each.levels) in cells]
    lacking = f", {len(refused)} of them refused (n/a)" if refused else ""
    size = f"Scale *{grid.scale}*: {len(cells)} cells{of}{lacking}"
    return "; ".join([size, *stand_ins, *tuned, *fixed]) + "."
