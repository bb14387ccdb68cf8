"""Table of all scores of a grid, with warnings about implausible evaluations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from gleak.experiments.axis_labels import BLIND, CONTROLS, read_metric
from gleak.figures.statistics import CELL, summarise
from gleak.metrics.score_table import read_scores, refused_scores, save_scores

logger = logging.getLogger(__name__)

ORDER = [*CELL, "victim", "sample", "metric"]
SETTING = [level for level in CELL if level != "attack"]


def tabulate(
    scores: Sequence[Path], output: Path, refused: Sequence[Mapping[str, str]] = ()
) -> pd.DataFrame:
    """Concatenate the scores of a grid's cells into one sorted table.

    Logs a warning for each attack that is no better than the blind control, and for each that was
    granted extra knowledge.

    Args:
        scores: ``scores.csv`` of every cell and control, in any order.
        output: table to write; equal inputs give equal bytes.
        refused: levels of the cells that were refused before any job, and the ``reason``.

    Returns:
        The table, in the form of `gleak.metrics.score_table`.

    Raises:
        ArtifactError: if a file is missing or is not a table of scores.
    """
    left_out = [refused_scores(each, each["reason"]) for each in refused]
    joined = pd.concat([read_scores(scores), *left_out])
    table = joined.sort_values(ORDER, na_position="first", ignore_index=True)
    for warning in [*_no_better_than_blind(table), *_granted(table)]:
        logger.warning("implausible evaluation: %s", warning)
    save_scores(table, output)
    return table


def _no_better_than_blind(table: pd.DataFrame) -> list[str]:
    errors = summarise(table, read_metric("mse"))[[*CELL, "ours"]]
    blind = errors[errors["attack"] == BLIND].drop(columns="attack")
    both = errors[~errors["attack"].isin(CONTROLS)].merge(
        blind, on=SETTING, suffixes=("", "_blind")
    )
    return [
        f"{'/'.join(row[level] for level in CELL)} has mean mse {row['ours']:.3g}, no better than "
        f"{row['ours_blind']:.3g} of {BLIND}, which uses no update"
        for _, row in both[both["ours"] >= both["ours_blind"]].iterrows()
    ]


def _granted(table: pd.DataFrame) -> list[str]:
    used = table[(table["grants"] != "") & (table["attack"] != BLIND)]
    pairs = used[["attack", "grants"]].drop_duplicates()
    return [f"{row['attack']} is granted {row['grants']}" for _, row in pairs.iterrows()]
