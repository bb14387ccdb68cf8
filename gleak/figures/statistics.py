"""Statistics of scores: one number per cell and metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np

from gleak.clients.base import ClientSpec
from gleak.core.lazy import pandas as pd
from gleak.figures.intervals import mean_interval
from gleak.metrics.base import MetricSpec
from gleak.metrics.score_table import LEVEL_COLUMNS, REFUSED, UNAVAILABLE
from gleak.studies.axis_labels import BLIND, AxisLabels, read_metric, read_spec
from gleak.studies.cell import Cell, levels_of
from gleak.studies.figure_spec import FigureData, GridFigure, Over, Statistic

Row = Mapping[str, Any]
SUCCESS = "success_content"
CELL = list(LEVEL_COLUMNS)
SETTING = [level for level in CELL if level not in ("crafting", "attack")]
"""Levels that cells have in common with the blind control to which they are compared."""
VICTIM = [*CELL, "victim"]
SAMPLE = [*VICTIM, "sample"]
BATCH = [*CELL, "batch"]


def records(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a table, each by column name."""
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def join_cells(scores: pd.DataFrame, names: AxisLabels) -> pd.DataFrame:
    """Add the cell of each row, looked up among the values of its grid, as column ``cell``."""
    rows = scores[CELL].drop_duplicates()
    cells = rows.assign(cell=pd.Series(names.cells(records(rows)), rows.index, dtype=object))
    return scores.merge(cells, on=CELL, how="left")


def cells_of(scores: pd.DataFrame) -> list[Cell]:
    """Return every cell of a joined table, in order of first appearance."""
    return list(scores.drop_duplicates(CELL)["cell"])


def table_of(cells: Sequence[Cell]) -> pd.DataFrame:
    """Return a table of cells: their levels as text, and the ``cell`` itself."""
    rows = [{**levels_of(cell), "cell": cell} for cell in cells]
    return pd.DataFrame(rows, columns=[*CELL, "cell"])


def chosen_cells(figure: GridFigure, material: FigureData) -> pd.DataFrame:
    """Return a table of the cells that a figure shows, by its axes in the order of the study.

    The last axis comes first: that of the panels.
    """
    axes, names = figure.axes[::-1], material.names
    ranks = {
        axis.level: {spec: n for n, spec in enumerate(names.axis(axis.level))} for axis in axes
    }
    cells = figure.chosen(names, cells_of(material.scores))
    return table_of(sorted(cells, key=lambda cell: [ranks[a.level][a.spec(cell)] for a in axes]))


def refusals(scores: pd.DataFrame) -> pd.Series:
    """Return the reason of each refused cell, by its levels."""
    rows = scores[scores["status"] == REFUSED].drop_duplicates(CELL)
    return rows.set_index(CELL)["reason"]


def select(scores: pd.DataFrame, wanted: Mapping[str, str]) -> pd.DataFrame:
    """Select the rows of a table with these values in their columns."""
    for level, value in wanted.items():
        scores = scores[scores[level] == value]
    return scores


def counted(scores: pd.DataFrame, metric: str, over: Over) -> pd.DataFrame:
    """Select the rows of one metric, a canonical spec, that enter a statistic.

    Rows without a value do not: unavailable values, and distances of unmatched samples (whose
    success is 0). A sample is successful if its ``success_content`` is 1, a victim (for metrics
    with one number per batch) if all its samples are. Where a cell has no success,
    ``successful_else_all`` selects all of its rows, as failed attacks ended when their budget was
    exhausted (CPL, section 4.2, on Table 7); their column ``failed`` is True.
    """
    rows = scores[(scores["metric"] == metric) & (scores["status"] != UNAVAILABLE)]
    rows = rows[rows["value"].notna()].assign(failed=False)
    if over == "all":
        return rows
    success = scores[scores["metric"] == SUCCESS]
    recovered, lost = success[success["value"] == 1], success[success["value"] != 1]
    whole = _keys(recovered, VICTIM).difference(_keys(lost, VICTIM))
    by_victim = _keys(rows, VICTIM).isin(whole)
    by_sample = _keys(rows, SAMPLE).isin(_keys(recovered, SAMPLE))
    successful = np.where(rows["sample"].isna(), by_victim, by_sample)
    if over == "successful":
        return rows[successful]
    some = rows.assign(some=successful).groupby(CELL)["some"].transform("any")
    return rows.assign(failed=~some)[successful | ~some]


def _keys(rows: pd.DataFrame, columns: list[str]) -> pd.MultiIndex:
    """Return an index of rows with -1 for missing samples, as missing values never match."""
    return pd.MultiIndex.from_frame(rows[columns].fillna({"sample": -1}).astype({"victim": int}))


def summarise(
    scores: pd.DataFrame, metric: MetricSpec, statistic: Statistic = "mean", over: Over = "all"
) -> pd.DataFrame:
    """Compute one statistic of one metric for each cell, in order of first appearance.

    Statistics are of the rows that are `counted`. Var and std are unbiased (divided by n - 1);
    best is the mean over victims of the best sample of each, as in MKOR's tables.

    Returns:
        The levels and metric, statistic, over, failed (no successes: ours is over failures),
        ours (NaN if no row counts), count (rows that count), rows (all rows of the metric) and
        reason (of the refusal; empty for other cells).
    """
    cells = scores[CELL].drop_duplicates().set_index(CELL)
    name = str(metric)
    rows = counted(scores, name, over)
    entering = rows.groupby(CELL)
    all_rows = scores[scores["metric"] == name].groupby(CELL).size()
    if statistic == "best":
        best = rows.groupby(VICTIM)["value"].agg(_victim_statistic(metric, statistic))
        ours = best.groupby(level=CELL).mean()
    else:
        ours = entering["value"].agg(statistic)
    table = cells.assign(metric=name, statistic=statistic, over=over)
    table["failed"] = entering["failed"].any().reindex(cells.index, fill_value=False)
    table["ours"] = ours.reindex(cells.index)
    table["count"] = entering.size().reindex(cells.index, fill_value=0)
    table["rows"] = all_rows.reindex(cells.index, fill_value=0)
    table["reason"] = refusals(scores).reindex(cells.index, fill_value="")
    return table.reset_index()


def average_batches(
    rows: pd.DataFrame, metric: MetricSpec, statistic: Literal["mean", "best"] = "mean"
) -> pd.Series:
    """Compute the value of each batch of true samples; batches are independent, samples are not.

    The value of a victim is the mean of its samples, or the best. Victims with the same samples
    (`gleak.clients.base.ClientSpec.repeats`) are averaged.

    Returns:
        The values by `BATCH`; a trained model, or broadcast parameters, are one batch.
    """

    def repeats(client: str) -> int:
        return cast(ClientSpec, read_spec("client", client)).repeats if client else 1

    values = rows.groupby(VICTIM, as_index=False)["value"].agg(_victim_statistic(metric, statistic))
    values["batch"] = values["victim"] // values["client"].map(repeats)
    return values.groupby(BATCH)["value"].mean()


def network_means(
    batches: pd.Series, client: ClientSpec | None, center: Literal["mean", "median"] = "mean"
) -> np.ndarray:
    """Compute the mean or median of each network from values by batch; Shape (networks).

    A grid with several ``networks`` numbers the batches of the first, then those of the second, and
    so on (`gleak.figures.tabulate`). Without clients networks are the batches: empty.
    """
    if client is None:
        return np.empty(0)
    networks = batches.index.get_level_values("batch") // client.batches
    return batches.groupby(networks).agg(center).to_numpy()


def _victim_statistic(metric: MetricSpec, statistic: str) -> str:
    """Return the name of the aggregation of a victim's samples."""
    if statistic == "mean":
        return "mean"
    return "max" if metric.better == "higher" else "min"


def spread_over_victims(
    scores: pd.DataFrame, metric: MetricSpec, over: Over = "all"
) -> pd.DataFrame:
    """Compute the spread of a metric over the batches (`average_batches`) of cells with values.

    Returns:
        By cell: ``victims``, the number of batches, and ``spread``, the standard deviation
        (unbiased, divided by n - 1). NaN for a single batch, for equal values, and for success
        rates, of which mean and number say everything.
    """
    means = average_batches(counted(scores, str(metric), over), metric).groupby(level=CELL)
    spread = means.std()
    shown = (spread > 0) & (not metric.binary)
    return pd.DataFrame({"victims": means.size(), "spread": spread.where(shown)}).reset_index()


def band_over_victims(
    scores: pd.DataFrame,
    metric: MetricSpec,
    over: Over = "all",
    band: Callable[[np.ndarray], tuple[float, float]] | None = None,
) -> pd.DataFrame:
    """Compute the ends ``low`` and ``high`` of a band for each cell with values.

    The band is computed of the values of its batches; without one, `mean_interval`, within the
    metric's limits.
    """

    def interval(levels: tuple[str, ...], batches: pd.Series) -> tuple[float, float]:
        if band is not None:
            return band(batches.to_numpy())
        text = levels[CELL.index("client")]
        client = cast(ClientSpec, read_spec("client", text)) if text else None
        ends = mean_interval(batches.to_numpy(), metric.binary, network_means(batches, client))
        low, high = np.clip(ends, *metric.limits)
        return float(low), float(high)

    cells = average_batches(counted(scores, str(metric), over), metric).groupby(level=CELL)
    ends = [interval(cast("tuple[str, ...]", levels), batches) for levels, batches in cells]
    return pd.DataFrame(ends, cells.size().index, columns=["low", "high"]).reset_index()


def worse_than_blind(summary: pd.DataFrame, metric: MetricSpec) -> pd.Series:
    """Return True for each row of a summary that is worse than the blind control of its setting.

    The summary (`summarise`) is of one metric and statistic, with the rows of blind, if any. Only
    metrics of single samples, which measure the quality of reconstructions, are compared.
    """
    blind = summary[summary["attack"] == BLIND]
    compared = metric.level == "attack" and metric.per == "sample" and not blind.empty
    if not compared or summary["statistic"].iloc[0] not in ("mean", "median", "best"):
        return pd.Series(data=False, index=summary.index)
    level = blind.drop_duplicates(SETTING).set_index(SETTING)["ours"]
    theirs = summary[SETTING].merge(level, left_on=SETTING, right_index=True, how="left")["ours"]
    sign = 1 if metric.better == "higher" else -1
    return sign * summary["ours"] < sign * theirs.reindex(summary.index)


def why_missing(metric: str) -> str:
    """Return what to say of a metric that has no value in any cell of a figure."""
    if read_metric(metric).weights:
        return "could not be computed: its weights are missing (make weights)"
    return "could not be computed here, the logs of scoring say why"
