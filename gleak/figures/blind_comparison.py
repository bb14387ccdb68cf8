"""Attacks compared with the blind control, and with what a study declares about them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from gleak.figures.statistics import CELL, join_cells, records, summarise
from gleak.studies.axis_labels import BLIND, CONTROLS, AxisLabels, read_metric
from gleak.studies.cell import Cell

if TYPE_CHECKING:
    from gleak.studies.grid import Grid
    from gleak.studies.study import Study

logger = logging.getLogger(__name__)

METRIC = "mse"
SETTING = [level for level in CELL if level not in ("crafting", "attack")]


def warn_of_weak_attacks(study: Study, scale: str, tables: Mapping[str, pd.DataFrame]) -> None:
    """Log a warning for each attack that is unexpectedly no better than blind, or better than it.

    Args:
        study: with the declarations (``no_better_than_blind``).
        scale: of the grids.
        tables: grid -> its scores.
    """
    for name, table in tables.items():
        for warning in _warnings(study.grid(name, scale), table):
            logger.warning("grid %s: %s", name, warning)


def compare_with_blind(scores: pd.DataFrame, names: AxisLabels) -> pd.DataFrame:
    """Return the mean squared errors of attacks and of the blind control of their setting.

    Args:
        scores: of a grid, in the form of `gleak.metrics.score_table`.
        names: of the grid.

    Returns:
        One row per attacked cell that has both: ``cell``, ``ours``, ``blind``.
    """
    errors = summarise(scores, read_metric(METRIC))[[*CELL, "ours"]]
    blind = errors[errors["attack"] == BLIND].drop_duplicates(SETTING)
    attacked = join_cells(errors[~errors["attack"].isin(CONTROLS)], names)
    both = attacked.merge(blind[[*SETTING, "ours"]].rename(columns={"ours": "blind"}), on=SETTING)
    return both.dropna(subset=["ours", "blind"])[["cell", "ours", "blind"]]


def _warnings(grid: Grid, scores: pd.DataFrame) -> Iterator[str]:
    compared = records(compare_with_blind(scores, grid.names))
    declared = {cell for weak in grid.weak for cell in weak.cells}
    varying = grid.names.varying([row["cell"] for row in compared])
    for row in compared:
        label = _describe(row["cell"], grid.names, varying)
        values = f"mean {METRIC} {row['ours']:.3g}, {BLIND} {row['blind']:.3g}"
        if row["ours"] >= row["blind"] and row["cell"] not in declared:
            yield (
                f"{label} is no better than {BLIND}, which uses no update ({values}); give it "
                "more iterations, or say why in no_better_than_blind"
            )
        if row["ours"] < row["blind"] and row["cell"] in declared:
            yield f"{label} is declared in no_better_than_blind, but is better ({values})"


def _describe(cell: Cell, names: AxisLabels, varying: list[str]) -> str:
    """Return the labels of the levels that differ in the grid, the attack always among them."""
    levels = dict.fromkeys([*varying, "attack"])
    return ", ".join(names.heading(level, cell.specs[level]) for level in levels)
