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
        networks: repetitions of each training; if there are several, each is a victim.

    Raises:
        ArtifactError: if a file is missing or is not a table of scores.
    """
    left_out = [refused_scores(each, each["reason"]) for each in refused]
    computed = read_scores(scores)
    joined = pd.concat([computed if networks == 1 else _as_victims(computed), *left_out])
    order = [*CELL, "victim", "sample", "metric"]
    table = joined.sort_values(order, na_position="first", ignore_index=True)
    used = table[(table["grants"] != "") & (table["attack"] != BLIND)]
    for attack, grants in used[["attack", "grants"]].drop_duplicates().to_numpy():
        logger.warning("implausible evaluation: %s is granted %s", attack, grants)
    save_scores(table, output)
    return table


def _as_victims(table: pd.DataFrame) -> pd.DataFrame:
    """Count the repetitions of a training as victims of the cell without a repetition."""
    specs = {text: parse("training", text) for text in table["training"].unique()}
    first = {text: str(spec.model_copy(update={"repetition": 0})) for text, spec in specs.items()}
    numbers = {text: spec.repetition for text, spec in specs.items()}
    training = table["training"]
    return table.assign(training=training.map(first), victim=training.map(numbers))
