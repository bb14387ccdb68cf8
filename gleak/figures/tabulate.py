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

ORDER = [*CELL, "victim", "sample", "metric"]


def tabulate(
    scores: Sequence[Path],
    output: Path,
    refused: Sequence[Mapping[str, str]] = (),
    networks: int = 1,
) -> pd.DataFrame:
    """Concatenate the scores of a grid's cells into one sorted table.

    Logs a warning for each attack that was granted extra knowledge.

    Args:
        scores: ``scores.csv`` of every cell and control, in any order.
        output: table to write; equal inputs give equal bytes.
        refused: levels of the cells that were refused before any job, and the ``reason``.
        networks: repetitions of each training; if there are several, each is a victim.

    Returns:
        The table, in the form of `gleak.metrics.score_table`.

    Raises:
        ArtifactError: if a file is missing or is not a table of scores.
    """
    left_out = [refused_scores(each, each["reason"]) for each in refused]
    computed = read_scores(scores)
    joined = pd.concat([computed if networks == 1 else _as_victims(computed), *left_out])
    table = joined.sort_values(ORDER, na_position="first", ignore_index=True)
    for warning in _granted(table):
        logger.warning("implausible evaluation: %s", warning)
    save_scores(table, output)
    return table


def _as_victims(table: pd.DataFrame) -> pd.DataFrame:
    """Count the repetitions of a training as victims of the cell without a repetition."""
    specs = {text: parse("training", text) for text in table["training"].unique()}
    first = {text: str(spec.model_copy(update={"repetition": 0})) for text, spec in specs.items()}
    numbers = {text: spec.repetition for text, spec in specs.items()}
    training = table["training"]
    return table.assign(training=training.map(first), victim=training.map(numbers))


def _granted(table: pd.DataFrame) -> list[str]:
    used = table[(table["grants"] != "") & (table["attack"] != BLIND)]
    pairs = used[["attack", "grants"]].drop_duplicates()
    return [f"{row['attack']} is granted {row['grants']}" for _, row in pairs.iterrows()]
