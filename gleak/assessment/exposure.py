"""Exposure of clients, from the table of scores of a grid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from gleak.assessment.findings import Exposure, Loss, Mean
from gleak.assessment.resolved import ExposureThreshold
from gleak.assessment.verdict_words import Verdict
from gleak.figures import intervals
from gleak.figures.evidence import UNCRAFTED, fill_with_blind
from gleak.figures.intervals import CONFIDENCE, SHOWN, Estimate
from gleak.figures.statistics import CELL, Row, average_batches, counted, records, select
from gleak.metrics.score_table import UNMATCHED
from gleak.studies.axis_labels import BLIND, read_metric
from gleak.studies.cell import TRUTH

CONTROLS = (BLIND, TRUTH)


def exposures(
    scores: pd.DataFrame, thresholds: Iterable[ExposureThreshold], **levels: str
) -> list[Exposure]:
    """Return the exposure by each attack and threshold in some cells of a table, the worst first.

    Args:
        scores: table of a grid, with the control blind.
        thresholds: of the deployment.
        **levels: specs of these cells; others are left out.
    """
    rows = select(scores, levels)
    attacked = rows[~rows["attack"].isin(CONTROLS)]
    cells = records(attacked[CELL].drop_duplicates())
    measured = [_exposure(rows, cell, threshold) for threshold in thresholds for cell in cells]
    return sorted(
        filter(None, measured), key=lambda e: (-e.above / e.clients, -(e.gain.value or 0))
    )


def _exposure(rows: pd.DataFrame, cell: Row, threshold: ExposureThreshold) -> Exposure | None:
    """Return the exposure in a cell; None if the metric was not measured."""
    metric, sign, attack = threshold.metric, threshold.sign, cell["attack"]
    peers = select(rows, {level: cell[level] for level in UNCRAFTED})
    losses = _losses(peers, attack, threshold)
    if not losses:
        return None
    ours = np.array([loss.value for loss in losses])
    blind = np.array([loss.blind for loss in losses])
    beyond = (sign * ours >= sign * threshold.value) & (sign * ours > sign * blind)
    above = int(beyond.sum())
    interval = intervals.clopper_pearson(above, len(losses), CONFIDENCE)
    found: Verdict = "exposed" if 2 * above >= len(losses) else "partly exposed"
    return Exposure(
        cell="/".join(cell[level] for level in CELL),
        attack=attack,
        metric=str(metric),
        threshold=threshold.value,
        better=metric.better,
        clients=len(losses),
        above=above,
        share=_mean(above / len(losses), *interval),
        samples=_samples_above(peers, attack, threshold),
        attacked=mean(intervals.mean_of(ours, metric.binary), *metric.limits),
        blind=mean(intervals.mean_of(blind, metric.binary), *metric.limits),
        gain=mean(intervals.paired_difference(sign * ours, sign * blind, metric.binary)),
        losses=losses,
        verdict=found if above else "not found",
    )


def _samples_above(rows: pd.DataFrame, attack: str, threshold: ExposureThreshold) -> Mean:
    """Return the share of a client's samples that are recovered, each beside its own guess."""
    filled, key = fill_with_blind(rows, threshold.metric), ["victim", "sample"]
    own, guesses = (
        select(filled, {"attack": name}).set_index(key)["value"] for name in (attack, BLIND)
    )
    ours, blind = threshold.sign * own, threshold.sign * guesses.reindex(own.index)
    beyond = (ours >= threshold.sign * threshold.value) & (ours > blind)
    shares = beyond.groupby("victim").mean().to_numpy(dtype=float)
    return mean(intervals.mean_of(shares, binary=True), 0.0, 1.0)


def _losses(rows: pd.DataFrame, attack: str, threshold: ExposureThreshold) -> list[Loss]:
    """Return the best recovered sample of each client, the worst loss first."""
    filled = fill_with_blind(rows, threshold.metric)
    filled = filled.assign(gain=threshold.sign * filled["value"]).reset_index(drop=True)
    best = filled.loc[filled.groupby(["attack", "victim"])["gain"].idxmax()]
    own, guesses = (select(best, {"attack": name}).set_index("victim") for name in (attack, BLIND))
    joined = own.join(guesses["value"].rename("blind"), how="inner")
    ranked = joined.sort_values("gain", ascending=False).reset_index()
    return [
        Loss(
            client=int(row["victim"]),
            sample=int(row["sample"]),
            value=float(row["value"]),
            blind=float(row["blind"]),
            found=row["status"] != UNMATCHED,
        )
        for row in records(ranked)
    ]


def mean(estimate: Estimate, least: float = -math.inf, most: float = math.inf) -> Mean:
    """Return a mean with its 95% interval, which fewer than three clients do not have.

    A bootstrap's interval may leave the range of a metric; its ends do not.
    """
    ends = estimate.interval() if estimate.n >= SHOWN else (math.nan, math.nan)
    return _mean(estimate.value, *np.clip(ends, least, most))


def _mean(*numbers: float) -> Mean:
    value, low, high = (None if math.isnan(number) else float(number) for number in numbers)
    return Mean(value=value, low=low, high=high)


def mean_in(scores: pd.DataFrame, metric: str, **levels: str) -> Mean:
    """Return the mean of a metric over the clients of some cells; empty if it was not measured."""
    spec = read_metric(metric)
    rows = counted(select(scores, levels), metric, "all")
    if rows.empty:
        return Mean(value=None, low=None, high=None)
    values: Any = average_batches(rows, spec).to_numpy()
    return mean(intervals.mean_of(np.asarray(values), spec.binary), *spec.limits)
