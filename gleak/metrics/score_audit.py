"""Scoring of an audit by canaries, as a table in long form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from gleak.artifacts.audit_trials import AuditTrials
from gleak.core.errors import RefusedError
from gleak.metrics import score_table
from gleak.metrics.base import metrics_of
from gleak.metrics.measured_epsilon import AuditMetricSpec, FinishedAudit
from gleak.metrics.score import score_subject


def score_audit(
    audit: Path,
    output: Path,
    levels: Mapping[str, str],
    metrics: Sequence[AuditMetricSpec] | None = None,
) -> pd.DataFrame:
    """Compute bounds on epsilon from the trials of an audit and write the table of scores.

    Args:
        audit: ``audit.h5``.
        output: table to write, ``scores.csv``; equal inputs give equal bytes.
        levels: spec string of each level.
        metrics: metrics to compute; None for every registered one, with its defaults.

    Returns:
        The table, in the form of `gleak.metrics.score_table`: one row per metric, for victim 0; for
        a cell that was refused in an earlier job, one row with its reason.

    Raises:
        ArtifactError: the file is invalid.
    """
    try:
        trials = AuditTrials.read(audit)
    except RefusedError as error:
        return score_table.save_refusal(levels, str(error), output)
    chosen = metrics_of("audit") if metrics is None else metrics
    return score_subject(chosen, FinishedAudit.of(trials, levels), output, levels)
