"""Table of all scores of a grid, with warnings about implausible evaluations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from gleak.core.registry import parse
from gleak.figures.statistics import CELL
from gleak.metrics.score_table import read_scores, refused_scores, save_scores
from gleak.studies.axis_labels import BLIND

logger = logging.getLogger(__name__)


def tabulate(
    scores: Sequence[Path],
    output: Path,
    refused: Sequence[Mapping[str, str]] = (),
    networks: int = 1,
) -> pd.DataFrame:
    """Concatenate the scores of a grid's cells, in any order, into one sorted table.

    Logs a warning for each attack that was granted extra knowledge. Equal inputs give equal bytes.

    Args:
        scores: ``scores.csv`` of every cell and control.
        output: table to write.
        refused: levels of the cells that were refused before any job, and the ``reason``.
        networks: repetitions of each training; if there are several, the victims of all are those
            of the cell without a repetition, and without an attack each network is a victim.

    Raises:
        ArtifactError: if a file is missing or is not a table of scores.
    """
    left_out = [refused_scores(each, each["reason"]) for each in refused]
    table = in_order([join_networks(read_scores(scores), networks), *left_out])
    used = table[(table["grants"] != "") & (table["attack"] != BLIND)]
    for attack, grants in used[["attack", "grants"]].drop_duplicates().to_numpy():
        logger.warning("implausible evaluation: %s is granted %s", attack, grants)
    save_scores(table, output)
    return table


def in_order(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables of scores in an order that does not depend on theirs."""
    order = [*CELL, "victim", "sample", "metric"]
    return pd.concat(tables).sort_values(order, na_position="first", ignore_index=True)


def join_networks(table: pd.DataFrame, networks: int) -> pd.DataFrame:
    """Join the victims of all repetitions of a training, undoing `Cell.repeated`."""
    if networks == 1 or table.empty:
        return table
    joined = []
    for (training, client), rows in table.groupby(["training", "client"], sort=False):
        network = parse("training", str(training))
        levels, victims = {"training": network.model_copy(update={"repetition": 0})}, 1
        if client:
            sending = parse("client", str(client))
            first = sending.first - network.repetition * sending.batches
            levels["client"] = sending.model_copy(update={"first": first})
            victims = sending.victims
        numbers = rows["victim"] + network.repetition * victims
        joined.append(rows.assign(victim=numbers, **{k: str(v) for k, v in levels.items()}))
    return pd.concat(joined)
