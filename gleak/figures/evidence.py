"""Evidence on a claim: estimates of what it compares, and the verdict they allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gleak.clients.base import ClientSpec
from gleak.core.lazy import pandas as pd
from gleak.figures.intervals import (
    CONFIDENCE,
    FEWEST,
    Estimate,
    Interval,
    batches_needed,
    clustered,
    independent_difference,
    mean_of,
    paired_difference,
)
from gleak.figures.statistics import CELL, average_batches, counted, network_means
from gleak.metrics.base import MetricSpec
from gleak.metrics.score_table import UNMATCHED
from gleak.studies.axis_labels import BLIND, read_metric
from gleak.studies.cell import Cell
from gleak.studies.claims import ClaimedRange, Expectation, Verdict

UNCRAFTED = [level for level in CELL if level not in ("attack", "crafting")]


@dataclass(frozen=True)
class CellValues:
    """Values of a metric in one cell, by the number of the batch."""

    by_batch: pd.Series
    batches: Hashable
    """What determines the batches (`shared_batches`)."""
    binary: bool
    client: ClientSpec | None = None

    @property
    def mean(self) -> float:
        """Mean over batches."""
        return float(self.by_batch.mean())


@dataclass(frozen=True)
class Evidence:
    """Estimates of one comparison of a claim.

    Args:
        comparison: the range that is claimed.
        estimate: from all samples; those that an attack did not find have the value of blind.
        found: from the samples found only.
        paper: the paper's number, NaN if it has none.
    """

    comparison: ClaimedRange
    estimate: Estimate
    found: Estimate | None
    paper: float


def judge(evidence: Sequence[Evidence]) -> Verdict:
    """Return the verdict on a claim.

    It holds if every 95% interval is within its range: if one is in truth outside, this happens
    with at most 2.5% (intersection-union test). It fails if any interval is outside its range, at a
    confidence of 1 - 0.05 / k for k comparisons, as each could by chance (Bonferroni).
    """
    if not evidence:
        return "no data"
    if min(each.estimate.n for each in evidence) < FEWEST:
        return "cannot tell"
    return _decide(evidence, lambda e, level: e.interval(level))


def _decide(
    evidence: Sequence[Evidence], interval: Callable[[Estimate, float], Interval]
) -> Verdict:
    if all(e.comparison.contains(*interval(e.estimate, CONFIDENCE)) for e in evidence):
        return "holds"
    stricter = 1 - (1 - CONFIDENCE) / len(evidence)
    if any(e.comparison.excludes(*interval(e.estimate, stricter)) for e in evidence):
        return "fails"
    return "cannot tell"


def needed(evidence: Sequence[Evidence]) -> int | None:
    """Return the number of batches with which a verdict is likely, given these means and variances.

    None if no number is: the variance of a single batch is unknown, or a mean is at the end of the
    range of its claim.
    """
    return batches_needed(
        lambda n: _decide(evidence, lambda e, level: e.planned(n, level)) != "cannot tell"
    )


@dataclass(frozen=True)
class GridValues:
    """Values of the cells of a grid, samples not found having the value of blind, or left out."""

    all: Mapping[Cell, CellValues]
    found: Mapping[Cell, CellValues]


def measure(claim: Expectation, scores: pd.DataFrame) -> GridValues:
    """Compute the values that a claim compares, from scores with the ``cell`` of each row."""
    metric = read_metric(claim.metric)
    found = values_by_cell(counted(scores, str(metric), claim.over), metric, claim.statistic)
    if claim.over != "all":
        return GridValues(found, found)
    filled = fill_with_blind(scores, metric)
    return GridValues(values_by_cell(filled, metric, claim.statistic), found)


def values_by_cell(
    rows: pd.DataFrame, metric: MetricSpec, statistic: Literal["mean", "best"] = "mean"
) -> dict[Cell, CellValues]:
    """Compute the values of each cell, from rows of a metric with their ``cell``."""
    cells = rows.drop_duplicates(CELL).set_index(CELL)["cell"]
    return {
        cells[levels]: CellValues(
            by_batch.droplevel([*CELL]),
            shared_batches(cells[levels]),
            metric.binary,
            cells[levels].specs.get("client"),
        )
        for levels, by_batch in average_batches(rows, metric, statistic).groupby(level=CELL)
    }


def collect(
    claim: Expectation,
    cells: Sequence[Cell | None],
    measured: GridValues,
    published: Sequence[Sequence[float]] = (),
) -> list[Evidence]:
    """Collect the evidence on a claim in one group of cells; empty if a value is missing.

    Args:
        claim: its comparisons.
        cells: the compared cells, in its order; None: the grid has no such cell.
        measured: values of the cells of the grid.
        published: the paper's values of these cells, by figure; the first that has all counts.
    """
    every, found = (
        [None if cell is None else values.get(cell) for cell in cells]
        for values in (measured.all, measured.found)
    )
    collected = []
    for comparison in claim.comparisons:
        estimated = estimate(comparison, every)
        if estimated is None:
            return []
        effects = (effect(comparison, values) for values in published)
        paper = next((number for number in effects if not math.isnan(number)), math.nan)
        collected.append(Evidence(comparison, estimated, estimate(comparison, found), paper))
    return collected


def effect(comparison: ClaimedRange, values: Sequence[float]) -> float:
    """Return the mean or difference that a comparison is about."""
    subtracted = 0.0 if comparison.minus is None else comparison.times * values[comparison.minus]
    return values[comparison.cell] - subtracted


def none_above_blind(
    claim: Expectation, cells: Sequence[Cell | None], values: Mapping[Cell, CellValues]
) -> bool:
    """Return True if a claim compares reconstructions none of which is better than blind's.

    Such images do not show that the update was used, so their differences say nothing about the
    leak. Claims about a mean alone, or about blind itself, are not concerned. The values are those
    of all cells of the grid, with the control; a compared cell that the grid lacks is None.
    """

    def setting(cell: Cell) -> tuple[str, ...]:
        return tuple(str(cell.specs.get(level)) for level in UNCRAFTED)

    metric = read_metric(claim.metric)
    compared = [cell for cell in cells if cell is not None and cell in values]
    differences = all(comparison.minus is not None for comparison in claim.comparisons)
    of_samples = metric.level == "attack" and metric.per == "sample"
    controls = [cell for cell in values if str(cell.specs.get("attack")) == BLIND]
    if not (compared and differences and of_samples) or not set(compared).isdisjoint(controls):
        return False
    sign = 1 if metric.better == "higher" else -1
    blind = {setting(cell): values[cell].mean for cell in controls}
    levels = [(values[cell].mean, blind.get(setting(cell))) for cell in compared]
    return all(level is not None and sign * mean <= sign * level for mean, level in levels)


def shared_batches(cell: Cell) -> Hashable:
    """Return what determines the batches of a cell: equal for cells that share their victims.

    Batches depend on the dataset and on how clients draw from it (`ClientSpec.draw`) only, as all
    cells of a run have one seed. In grids without clients each network is a batch; those of one
    architecture and repetition begin with the same parameters.
    """
    client = cell.specs.get("client")
    if isinstance(client, ClientSpec):
        return cell.dataset, client.draw
    return cell.dataset, cell.model


def fill_with_blind(scores: pd.DataFrame, metric: MetricSpec) -> pd.DataFrame:
    """Return the rows of a metric with the value of the blind control for samples not found.

    Otherwise an attack that reports its best samples only would be ahead of one that reports all.
    Samples remain left out if the grid has no such control, or if it has no value either.
    """
    rows = scores[scores["metric"] == str(metric)]
    key = [*UNCRAFTED, "victim", "sample"]
    blind = rows[(rows["attack"] == BLIND) & rows["value"].notna()].drop_duplicates(key)
    instead = rows[key].merge(blind[[*key, "value"]], on=key, how="left")["value"]
    lost = (rows["status"] == UNMATCHED) & rows["value"].isna()
    filled = rows["value"].where(~lost, instead.to_numpy())
    return rows.assign(value=filled, failed=False)[filled.notna()]


def estimate(comparison: ClaimedRange, values: Sequence[CellValues | None]) -> Estimate | None:
    """Estimate a mean or a difference from the values of a group; None if there are none.

    Differences are paired if the cells share their batches, over the batches that both have.
    """
    first = values[comparison.cell]
    if comparison.minus is None:
        return None if first is None else mean_estimate(first)
    second = values[comparison.minus]
    if first is None or second is None:
        return None
    times, binary = comparison.times, first.binary and comparison.times == 1
    if first.batches != second.batches:
        groups = [first.by_batch, times * second.by_batch]
        clients = (first.client, second.client)
        networks = [network_means(*pair) for pair in zip(groups, clients, strict=True)]
        ours, theirs = (each.to_numpy() for each in groups)
        return clustered(independent_difference(ours, theirs, binary), *networks)
    pairs = pd.concat([first.by_batch, times * second.by_batch], axis=1, join="inner")
    if pairs.empty:
        return None
    ours, theirs = pairs.to_numpy().T
    change = pairs.iloc[:, 0] - pairs.iloc[:, 1]
    return clustered(paired_difference(ours, theirs, binary), network_means(change, first.client))


def mean_estimate(values: CellValues) -> Estimate:
    """Return the estimate of a cell's mean."""
    networks = network_means(values.by_batch, values.client)
    return clustered(mean_of(values.by_batch.to_numpy(), values.binary), networks)
