"""Scoring of trained models, without reconstruction and truth."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gleak.artifacts.model import Model
from gleak.core.errors import RefusedError
from gleak.metrics.base import MetricUnavailable, ModelMetricSpec, metrics_of
from gleak.metrics.score_table import (
    COLUMNS,
    LEVEL_COLUMNS,
    OK,
    TYPES,
    UNAVAILABLE,
    save_refusal,
    save_scores,
)

logger = logging.getLogger(__name__)


def score_model(
    model: Path,
    output: Path,
    levels: Mapping[str, str],
    metrics: Sequence[ModelMetricSpec] | None = None,
) -> pd.DataFrame:
    """Measure a trained model and write the table of scores.

    Args:
        model: ``model.h5``.
        output: table to write, ``scores.csv``; equal inputs give equal bytes.
        levels: spec string of each level up to the training.
        metrics: metrics to compute; None for every registered one of models, with its defaults.

    Returns: The table, in the form of `gleak.metrics.score_table`: one row per metric, for victim
        0, later levels and grants empty; for a refused model, one row with the reason.

    Raises:
        ArtifactError: the file is invalid.
    """
    try:
        subject = Model.read(model)
    except RefusedError as error:
        return save_refusal(levels, str(error), output)
    chosen = metrics_of("training") if metrics is None else metrics
    return score_subject(chosen, subject, output, levels)


def score_subject(
    metrics: Iterable[Any], subject: object, output: Path, levels: Mapping[str, str]
) -> pd.DataFrame:
    """Compute metrics that need no reconstruction, and write the table of scores.

    Args:
        metrics: metrics of such a subject, one value each.
        subject: what they measure: a model, or broadcast parameters.
        output: table to write.
        levels: spec string of each level up to the subject's own.

    Returns:
        The table: one row per metric, for victim 0, later levels and grants empty.
    """
    fixed = {**dict.fromkeys(LEVEL_COLUMNS, ""), **levels, "victim": 0, "grants": "", "reason": ""}
    rows = [{**fixed, **_measure(metric, subject)} for metric in metrics]
    table = pd.DataFrame(rows, columns=COLUMNS).astype(TYPES)
    save_scores(table, output)
    return table


def _measure(metric: Any, subject: object) -> dict[str, object]:
    """Return the metric, value and status of a row."""
    try:
        return {"metric": str(metric), "value": metric.measure(subject), "status": OK}
    except MetricUnavailable as reason:
        logger.warning("metric %s is unavailable: %s", metric, reason)
        return {"metric": str(metric), "value": np.nan, "status": UNAVAILABLE}
