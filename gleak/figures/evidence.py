"""Evidence on a claim: estimates of what it compares, and the verdict they allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from gleak.attacks.base import AttackSpec
from gleak.clients.base import ClientSpec
from gleak.clients.fedavg import CapturedUpdates
from gleak.core.lazy import pandas as pd
from gleak.figures.intervals import (
    CONFIDENCE,
    FEWEST,
    UNBOUNDED,
    Estimate,
    Interval,
    Means,
    Medians,
    batches_needed,
    clustered,
    overlapping,
    rate_of,
)
from gleak.figures.statistics import CELL, average_batches, counted, network_means
from gleak.metrics.base import MetricSpec, ScoreSpec
from gleak.metrics.score_table import UNMATCHED
from gleak.studies.axis_labels import BLIND, is_control, read_metric
from gleak.studies.cell import Cell
from gleak.studies.claims import ClaimedRange, Expectation, Verdict

ENOUGH = 50
"""Values from which the interval of a mean holds its confidence; see docs/guide/verdicts.md."""
DIFFERENCES = {"psnr": 0.5, "ssim": 0.02, "lpips": 0.02, "iterations": 5.0}
SHARE = 0.05
"""What a reader would call a difference between two numbers of a metric, and of success rates."""
SplitSizes = Mapping[str, Mapping[str, int]]
"""Number of samples by dataset and split."""
SMALLEST_ERROR, HALVINGS = 1e-9, 24
UNCRAFTED = [level for level in CELL if level not in ("attack", "crafting")]


@dataclass(frozen=True)
class CellValues:
    """Values of a metric in one cell, by the number of the batch."""

    by_batch: pd.Series
    batches: Hashable
    """What determines the batches (`shared_batches`)."""
    binary: bool
    client: ClientSpec | None = None
    attack: AttackSpec | None = None
    disjoint: float = math.inf
    """Largest number of batches of the split without a common sample."""

    @property
    def center(self) -> float:
        """Success rate, or median over batches."""
        return float(self.by_batch.mean() if self.binary else self.by_batch.median())


@dataclass(frozen=True)
class Evidence:
    """Estimates of one comparison of a claim.

    Args:
        comparison: the range that is claimed.
        estimate: from all samples; those that an attack did not find have the value of blind. In
            differences, unless of a control, so has an attack that is not better than blind.
        found: from the samples found only.
        paper: the paper's number, NaN if it has none.
        mean: of what the paper gives the mean; None if nothing is known of its distribution.
        margin: what counts as a difference between the paper's number and ours.
        limits: least and greatest possible value.
    """

    comparison: ClaimedRange
    estimate: Estimate
    found: Estimate | None
    paper: float
    mean: Estimate | None = None
    margin: float = 0.0
    limits: Interval = UNBOUNDED

    @property
    def interval(self) -> Interval:
        """The estimate's interval, which ends at the limits."""
        return Interval(*np.clip(self.estimate.interval(), *self.limits))


def judge(evidence: Sequence[Evidence], papers_protocol: bool = False) -> Verdict:
    """Return the verdict on a claim.

    It holds if every 95% interval is within its range: if one is in truth outside, this happens
    with at most 2.5% (intersection-union test). It fails if any interval is outside its range, at a
    confidence of 1 - 0.05 / k for k comparisons, as each could by chance (Bonferroni). Under the
    paper's protocol the claim differs if it does not fail, and if the interval of a mean excludes
    the paper's number by more than a margin, at the same confidence.
    """
    if not evidence:
        return "no data"
    if min(each.estimate.n for each in evidence) < FEWEST:
        return "cannot tell"
    verdict = _decide(evidence, lambda e, level: e.interval(level))
    if papers_protocol and verdict != "fails" and _differs(evidence, CONFIDENCE):
        return "differs"
    return verdict


def error_of(evidence: Sequence[Evidence], verdict: Verdict) -> float:
    """Return the smallest error at which a verdict stands, for corrections; NaN without verdict.

    The error is one minus the confidence of the intervals, before it is shared out.
    """
    stands = {"holds": _holds, "fails": _fails, "differs": _differs}.get(verdict)
    if stands is None:
        return math.nan
    low, high = math.log(SMALLEST_ERROR), math.log(1 - CONFIDENCE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if stands(evidence, 1 - math.exp(middle)) else (middle, high)
    return math.exp(high)


def _decide(
    evidence: Sequence[Evidence], interval: Callable[[Estimate, float], Interval]
) -> Verdict:
    if _holds(evidence, CONFIDENCE, interval):
        return "holds"
    return "fails" if _fails(evidence, CONFIDENCE, interval) else "cannot tell"


def _interval(estimate: Estimate, confidence: float) -> Interval:
    return estimate.interval(confidence)


def _holds(
    evidence: Sequence[Evidence],
    confidence: float,
    interval: Callable[[Estimate, float], Interval] = _interval,
) -> bool:
    return all(e.comparison.contains(*interval(e.estimate, confidence)) for e in evidence)


def _fails(
    evidence: Sequence[Evidence],
    confidence: float,
    interval: Callable[[Estimate, float], Interval] = _interval,
) -> bool:
    stricter = 1 - (1 - confidence) / len(evidence)
    return any(e.comparison.excludes(*interval(e.estimate, stricter)) for e in evidence)


def _differs(evidence: Sequence[Evidence], confidence: float) -> bool:
    """Return True if the interval of a mean excludes the paper's number by more than a margin."""
    stricter = 1 - (1 - confidence) / len(evidence)
    return any(
        not low - each.margin <= each.paper <= high + each.margin
        for each in evidence
        if each.mean is not None and not math.isnan(each.paper)
        for low, high in [each.mean.interval(stricter)]
    )


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


def measure(
    claim: Expectation, scores: pd.DataFrame, sizes: SplitSizes = MappingProxyType({})
) -> GridValues:
    """Compute the values that a claim compares, from scores with the ``cell`` of each row."""
    metric = read_metric(claim.metric)
    rows = counted(scores, str(metric), claim.over)
    found = values_by_cell(rows, metric, claim.statistic, sizes)
    if claim.over != "all":
        return GridValues(found, found)
    filled = fill_with_blind(scores, metric)
    return GridValues(values_by_cell(filled, metric, claim.statistic, sizes), found)


def values_by_cell(
    rows: pd.DataFrame,
    metric: MetricSpec,
    statistic: Literal["mean", "best"] = "mean",
    sizes: SplitSizes = MappingProxyType({}),
) -> dict[Cell, CellValues]:
    """Compute the values of each cell, from rows of a metric with their ``cell``.

    ``sizes`` are those of datasets whose specs do not tell them.
    """
    cells = rows.drop_duplicates(CELL).set_index(CELL)["cell"]
    return {
        cells[levels]: CellValues(
            _once_a_job(by_batch.droplevel([*CELL]), metric, cells[levels]),
            shared_batches(cells[levels]),
            metric.binary,
            cells[levels].specs.get("client"),
            _attack_of(cells[levels]),
            _disjoint_batches(cells[levels], sizes),
        )
        for levels, by_batch in average_batches(rows, metric, statistic).groupby(level=CELL)
    }


def _once_a_job(by_batch: pd.Series, metric: MetricSpec, cell: Cell) -> pd.Series:
    """Return the values of batches, or one for each network if all its victims share the value."""
    client = cell.specs.get("client")
    if not metric.of_job or not isinstance(client, ClientSpec):
        return by_batch
    return by_batch.groupby(by_batch.index // client.batches).first().rename_axis("batch")


def _disjoint_batches(cell: Cell, sizes: SplitSizes) -> float:
    client = cell.specs.get("client")
    known = cell.dataset.sizes or sizes.get(str(cell.dataset))
    if known is None or not isinstance(client, ClientSpec) or isinstance(client, CapturedUpdates):
        return math.inf
    taken = client.batch_size
    if client.labels == "unique" and cell.dataset.classes is not None:
        taken = cell.dataset.classes  # A victim takes a class's sample of its own number.
    return known[client.split] // taken


def _attack_of(cell: Cell) -> AttackSpec | None:
    attack = cell.specs.get("attack")
    return attack if isinstance(attack, AttackSpec) else None


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
    metric = read_metric(claim.metric)
    every, found, above_blind = (
        [None if cell is None else values.get(cell) for cell in cells]
        for values in (measured.all, measured.found, count_as_blind(measured.all, metric))
    )
    with_control = any(cell is not None and is_control(cell) for cell in cells)
    margin = SHARE if metric.binary else DIFFERENCES.get(metric.name, 0.0)
    collected = []
    for comparison in claim.comparisons:
        estimated = estimate(
            comparison, every if with_control or comparison.minus is None else above_blind
        )
        if estimated is None:
            return []
        effects = (effect(comparison, values) for values in published)
        paper = next((number for number in effects if not math.isnan(number)), math.nan)
        mean = mean_estimate(comparison, every)
        one_sided = comparison.minus is not None and (comparison.low >= 0 or comparison.high <= 0)
        slack = min(margin, abs(paper) / 2) if one_sided and math.isfinite(paper) else margin
        found_only = estimate(comparison, found)
        limits = Interval(*metric.limits) if comparison.minus is None else UNBOUNDED
        collected.append(Evidence(comparison, estimated, found_only, paper, mean, slack, limits))
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
    metric = read_metric(claim.metric)
    compared = [cell for cell in cells if cell is not None and cell in values]
    differences = all(comparison.minus is not None for comparison in claim.comparisons)
    if not (compared and differences and _measures_quality(metric)) or any(
        map(is_control, compared)
    ):
        return False
    blind = _blind_by_setting(values)
    return all(_below(values[cell], blind.get(setting_of(cell)), metric) for cell in compared)


def count_as_blind(values: Mapping[Cell, CellValues], metric: ScoreSpec) -> dict[Cell, CellValues]:
    """Return values of cells, those of blind where an attack is not better.

    An attacker whose attack is worse than a guess guesses, so what beats it has to beat blind.
    """
    if not _measures_quality(metric):
        return dict(values)
    blind = _blind_by_setting(values)

    def counted(cell: Cell) -> CellValues:
        guess = blind.get(setting_of(cell))
        return guess if guess is not None and _below(values[cell], guess, metric) else values[cell]

    return {cell: values[cell] if is_control(cell) else counted(cell) for cell in values}


def _measures_quality(metric: ScoreSpec) -> bool:
    return isinstance(metric, MetricSpec) and metric.per == "sample"


def setting_of(cell: Cell) -> tuple[str, ...]:
    """Return the specs that a cell has in common with its control."""
    return tuple(str(cell.specs.get(level)) for level in UNCRAFTED)


def _blind_by_setting(values: Mapping[Cell, CellValues]) -> dict[tuple[str, ...], CellValues]:
    return {
        setting_of(cell): own
        for cell, own in values.items()
        if str(cell.specs.get("attack")) == BLIND
    }


def _below(ours: CellValues, blind: CellValues | None, metric: ScoreSpec) -> bool:
    """Return True if an attack is not better than blind."""
    sign = 1 if metric.better == "higher" else -1
    return blind is not None and sign * ours.center <= sign * blind.center


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
    """Estimate a rate, a median or a difference from values of a group; None if there are none.

    Differences are paired if the cells share their batches, over the batches that both have.
    """
    groups = _groups(comparison, values)
    if not groups:
        return None
    arrays, binary = [group.to_numpy() for group in groups], _binary(comparison, values)
    paired = comparison.minus is not None and len(groups) == 1
    estimated = rate_of(*arrays, paired=paired) if binary else Medians(tuple(arrays))
    networks = _networks(comparison, values, groups, "mean" if binary else "median")
    return overlapping(clustered(estimated, *networks), _disjoint(comparison, values))


def center_estimate(values: CellValues) -> Estimate:
    """Return the estimate of a cell's success rate or median."""
    estimated = estimate(ClaimedRange(0), [values])
    assert estimated is not None  # a cell has values
    return estimated


def mean_estimate(comparison: ClaimedRange, values: Sequence[CellValues | None]) -> Estimate | None:
    """Estimate the mean that a paper gives; None if its interval would miss it too often.

    Intervals of success rates are exact; those of other means need `ENOUGH` values.
    """
    if _binary(comparison, values):
        return estimate(comparison, values)
    groups, disjoint = _groups(comparison, values), _disjoint(comparison, values)
    if not groups or min(disjoint, *map(len, groups)) < ENOUGH:
        return None
    means = Means(tuple(group.to_numpy() for group in groups))
    networks = _networks(comparison, values, groups, "mean")
    return overlapping(clustered(means, *networks), disjoint)


def _binary(comparison: ClaimedRange, values: Sequence[CellValues | None]) -> bool:
    first = values[comparison.cell]
    return first is not None and first.binary and comparison.times == 1


def _groups(comparison: ClaimedRange, values: Sequence[CellValues | None]) -> list[pd.Series]:
    """Return the values that a comparison is about, or their paired differences, or two groups."""
    first = values[comparison.cell]
    second = None if comparison.minus is None else values[comparison.minus]
    if first is None or (comparison.minus is not None and second is None):
        return []
    if second is None:
        return [first.by_batch]
    subtracted = comparison.times * second.by_batch
    if first.batches != second.batches:
        return [first.by_batch, subtracted]
    pairs = pd.concat([first.by_batch, subtracted], axis=1, join="inner")
    return [] if pairs.empty else [pairs.iloc[:, 0] - pairs.iloc[:, 1]]


def _networks(
    comparison: ClaimedRange,
    values: Sequence[CellValues | None],
    groups: Sequence[pd.Series],
    center: Literal["mean", "median"],
) -> list[np.ndarray]:
    """Return the mean or median of each network in each group of `_groups`."""
    clients = [each.client for each in _compared(comparison, values)]
    return [network_means(*pair, center) for pair in zip(groups, clients, strict=False)]


def _disjoint(comparison: ClaimedRange, values: Sequence[CellValues | None]) -> float:
    """Return the least number of disjoint batches of a cell; infinite if all of all cells are."""
    pairs = [(each.disjoint, len(each.by_batch)) for each in _compared(comparison, values)]
    shared = any(disjoint < batches for disjoint, batches in pairs)
    return min(map(min, pairs)) if shared else math.inf


def _compared(comparison: ClaimedRange, values: Sequence[CellValues | None]) -> list[CellValues]:
    positions = [comparison.cell, *([] if comparison.minus is None else [comparison.minus])]
    return [each for each in map(values.__getitem__, positions) if each is not None]
