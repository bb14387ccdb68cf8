"""Scoring of membership inference, as a table in long form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gleak.artifacts.membership import Members, Membership
from gleak.core.errors import ArtifactError, RefusedError
from gleak.metrics import score_table
from gleak.metrics.base import metrics_of
from gleak.metrics.discrimination import MembershipMetricSpec, RankedCandidates
from gleak.metrics.score_table import LEVEL_COLUMNS, OK, TYPES


def score_members(
    members: Path,
    membership: Path,
    output: Path,
    columns: Mapping[str, str],
    metrics: Sequence[MembershipMetricSpec] | None = None,
) -> pd.DataFrame:
    """Measure how well members were told from others and write the table of scores.

    Args:
        members: the truth, ``members.h5``.
        membership: the evidence, ``membership.h5``.
        output: table to write, ``scores.csv``; equal inputs give equal bytes.
        columns: spec string of each level, and ``grants``, what the attack was granted.
        metrics: metrics to compute; None for every registered one, with its defaults.

    Returns:
        The table, in the form of `gleak.metrics.score_table`; for a cell that was refused in an
        earlier job, one row with its reason. Samples are numbered among a victim's members.

    Raises:
        ArtifactError: a file is invalid, or the two do not belong together.
    """
    try:
        ranked = rank(members, membership)
    except RefusedError as error:
        return score_table.save_refusal(columns, str(error), output)
    chosen = metrics_of("membership") if metrics is None else metrics
    fixed = {name: columns[name] for name in (*LEVEL_COLUMNS, "grants")}
    rows: list[dict[str, Any]] = []
    for metric in chosen:
        for victim, values in enumerate(metric.measure(ranked)):
            for sample, value in enumerate(values):
                number = sample if metric.per == "sample" else pd.NA
                rows.append(
                    {"victim": victim, "sample": number, "metric": str(metric), "value": value}
                )
    table = pd.DataFrame(rows).assign(**fixed, status=OK, reason="")
    table = table[list(score_table.COLUMNS)].astype(TYPES)
    score_table.save_scores(table, output)
    return table


def rank(members: Path, membership: Path) -> RankedCandidates:
    """Read the truth and the evidence; errors as for `score_members`."""
    truth, found = Members.read(members), Membership.read(membership)
    if not found.spec.startswith(truth.spec) or truth.member.shape != found.evidence.shape:
        raise ArtifactError(
            f"{membership}: made for {found.spec}, candidates of shape {found.evidence.shape}, but "
            f"{members} for {truth.spec}, {truth.member.shape}; they belong to different "
            "experiments: delete both and run again"
        )
    counts = truth.member.sum(1)
    if not counts.all() or (counts == truth.member.shape[1]).any():
        raise ArtifactError(
            f"{members}: a victim has no member, or nothing else, among its candidates; there is "
            "nothing to tell apart"
        )
    return RankedCandidates(found.evidence, np.asarray(truth.member, dtype=bool))
