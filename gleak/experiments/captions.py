"""Captions of the report: what a figure shows and under which conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gleak.core.registry import parse
from gleak.experiments.axis_labels import TRUTH, setting
from gleak.experiments.figure_spec import FigureSpec, Row

if TYPE_CHECKING:
    from gleak.experiments.grid import Grid


def caption(figure: FigureSpec, grids: Sequence[Grid]) -> str:
    """A figure's caption in reStructuredText, with the conditions under which it is made.

    Args:
        figure: its spec.
        grids: those it is drawn from, at one scale.
    """
    reproduces = f"Reproduces {figure.reproduces}." if figure.reproduces else ""
    conditions = [_conditions(figure.chosen(grid.names, grid.scored), grid) for grid in grids]
    sentences = [figure.caption.strip(), reproduces, *conditions]
    return "\n\n".join(sentence for sentence in sentences if sentence)


def _conditions(rows: Sequence[Row], grid: Grid) -> str:
    cells = [row for row in rows if row["attack"] != TRUTH]
    clients = {row["client"] for row in cells} - {""}
    victims = sorted({parse("client", client).victims for client in clients})
    values = {level: sorted({row[level] for row in cells}) for level in grid.names.values}
    stand_ins = [
        f"``{ours}`` stands in for ``{theirs}``"
        for level, pairs in grid.names.stands_for.items()
        for ours, theirs in pairs.items()
        if ours in values[level] and setting(level, ours) != setting(level, theirs)
    ]
    tuned = [
        f"``{ours}`` is ``{base}`` as a search chose it"
        for level, pairs in grid.names.tuned_from.items()
        for ours, base in pairs.items()
        if ours in values.get(level, []) and ours != base
    ]
    fixed = [f"{level} ``{found[0]}``" for level, found in values.items() if len(found) == 1]
    of = f" of {' or '.join(map(str, victims))} victims" if victims else ""
    left_out = len([refusal for refusal in grid.refused if refusal.levels in cells])
    lacking = f", {left_out} of them refused (n/a)" if left_out else ""
    size = f"Scale *{grid.scale}*: {len(cells)} cells{of}{lacking}"
    return "; ".join([size, *stand_ins, *tuned, *fixed]) + "."
