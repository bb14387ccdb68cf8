"""Numbers of plots: means, error bands, published values, means of the controls."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

from gleak.core.numbers import format_number
from gleak.core.registry import parse
from gleak.experiments.axes import has_field, label_alone, label_place, level_of
from gleak.experiments.axis_labels import BLIND, TRUTH, AxisLabels
from gleak.experiments.figure_spec import FigureData, Over
from gleak.figures.kinds.base import MeanPlot, Plot
from gleak.figures.published import add_published
from gleak.figures.statistics import (
    CELL,
    VICTIM,
    Row,
    cells_of,
    counted,
    records,
    select,
    summarise,
)

RESAMPLES = 2000
NUMBERS = ["metric", "statistic", "over", "failed", "x", "hue", "facet", "ours", "low", "high"]
BOOKS = ["published", "count", "rows", "stand_in", "reason"]
COLUMNS = [*CELL, *NUMBERS, *BOOKS]


def summarise_points(figure: MeanPlot, material: FigureData) -> pd.DataFrame:
    """Compute one row per point: cell, position, mean, band, published value; in study order.

    The column ``shown`` has its metric as written in the study.
    """
    names, scores = material.names, material.scores
    chosen = pd.DataFrame(figure.chosen(names, cells_of(scores)), columns=CELL)
    summaries = [_summarise(figure, scores, *measured) for measured in figure.measured.items()]
    compared = add_published(chosen.merge(pd.concat(summaries)), material.published, names)
    return place_rows(figure, names, compared)


def place_rows(figure: Plot, names: AxisLabels, table: pd.DataFrame) -> pd.DataFrame:
    """Add x, hue and facet to the rows of cells, and sort them in the order of the study.

    Args:
        figure: spec with the axes.
        names: labels of the grid.
        table: levels of each cell, and ``shown``, its metric as written in the study.
    """
    placed = [point for row in records(table) for point in _place(figure, names, row, table)]
    return pd.DataFrame(_sort(figure, names, placed))


def summarise_controls(figure: Plot, material: FigureData) -> pd.DataFrame:
    """Compute the controls' means over all cells of each panel; columns as of the points."""
    names = material.names
    wanted = {k: v for k, v in names.select(figure.where).items() if k != "attack"}
    scores = select(material.scores, wanted)
    rows = [
        {**row, "facet": facet, "shown": metric}
        for metric in figure.measured
        for row in records(summarise(scores, str(parse("metric", metric))))
        if row["attack"] in (BLIND, TRUTH)
        for facet in _panels_of_control(figure, names, row)
    ]
    table = pd.DataFrame(rows, columns=[*COLUMNS, "shown"])
    sums = {"ours": "mean", "count": "sum", "rows": "sum"}
    same = dict.fromkeys(["metric", "statistic", "over", "failed"], "first")
    groups = table.groupby(["shown", "facet", "attack"], as_index=False, sort=False)
    return groups.agg({**sums, **same}).reindex(columns=table.columns)


def _summarise(figure: MeanPlot, scores: pd.DataFrame, shown: str, over: Over) -> pd.DataFrame:
    metric = str(parse("metric", shown))
    summary = summarise(scores, metric, "mean", over).assign(shown=shown)
    return summary.merge(_bands(figure, counted(scores, metric, over)), on=CELL, how="left")


def _bands(figure: MeanPlot, rows: pd.DataFrame) -> pd.DataFrame:
    """Compute the error band of each cell over victims, whose samples are not independent."""
    victims = rows.groupby(VICTIM, as_index=False)["value"].mean()
    band = interval if figure.error == "ci" else deviation
    bands = [
        {**dict(zip(CELL, cell, strict=True)), "low": low, "high": high}
        for cell, values in victims.groupby(CELL)["value"]
        for low, high in [band(values.to_numpy())]
    ]
    return pd.DataFrame(bands, columns=[*CELL, "low", "high"])


def interval(values: np.ndarray) -> tuple[float, float]:
    """Compute a 95% percentile bootstrap interval of the mean; NaN for a single value."""
    if len(values) < 2:
        return math.nan, math.nan
    result = bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(result.low), float(result.high)


def deviation(values: np.ndarray) -> tuple[float, float]:
    """Compute the mean minus and plus one standard deviation; NaN for a single value."""
    if len(values) < 2:
        return math.nan, math.nan
    return float(values.mean() - values.std(ddof=1)), float(values.mean() + values.std(ddof=1))


def _place(figure: Plot, names: AxisLabels, row: Row, compared: pd.DataFrame) -> list[Row]:
    """Return the points of a cell: one, or one per colour if it belongs to several."""
    placed = {**row, "x": figure.along(names, row), "facet": _facet(figure, names, row)}
    if figure.hue is None:
        return [{**placed, "hue": ""}]
    level, own = level_of(figure.hue), label_place(figure.hue, names, row)
    if level != level_of(figure.x) or has_field(figure.x, row[level]):
        return [{**placed, "hue": own}]
    lines = [v for v in names.values[level] if v in set(compared[level]) and has_field(figure.x, v)]
    labels = [label_place(figure.hue, names, {level: value}) for value in lines] or [own]
    return [{**placed, "hue": label} for label in dict.fromkeys(labels)]


def _facet(figure: Plot, names: AxisLabels, row: Row) -> str:
    return "" if figure.facets is None else label_alone(figure.facets, names, row)


def _panels_of_control(figure: Plot, names: AxisLabels, row: Row) -> list[str]:
    """Return the panels of a control: its own, or all if panels distinguish attacks."""
    if figure.facets is None or level_of(figure.facets) != "attack":
        return [_facet(figure, names, row)]
    attacks = [value for value in names.values["attack"] if value not in (BLIND, TRUTH)]
    return list(dict.fromkeys(_facet(figure, names, {"attack": value}) for value in attacks))


def _sort(figure: Plot, names: AxisLabels, points: list[Row]) -> list[Row]:
    """Sort by metric, panel and colour in the order of the study, then along x."""
    metrics = list(figure.measured)
    facets = _rank(figure.facets, names, label_alone)
    hues = _rank(figure.hue, names, label_place)
    values = names.values[level_of(figure.x)]

    def key(row: Row) -> tuple[float, ...]:
        x = row["x"]
        along = values.index(row[level_of(figure.x)]) if isinstance(x, str) else x
        return metrics.index(row["shown"]), facets[row["facet"]], hues[row["hue"]], along

    return sorted(points, key=key)


def _rank(axis: str | None, names: AxisLabels, label: Callable[..., str]) -> dict[str, int]:
    """Map the labels of an axis to their rank in the order of the study."""
    if axis is None:
        return {"": 0}
    level = level_of(axis)
    labels = [label(axis, names, {level: value}) for value in names.values[level]]
    return {label: i for i, label in enumerate(dict.fromkeys(labels))}


def categories(figure: Plot, names: AxisLabels, points: pd.DataFrame) -> dict[float | str, str]:
    """Return the tick label of each x in the points, in the order of the study."""
    level, found = level_of(figure.x), set(points["x"])
    order = dict.fromkeys(figure.along(names, {level: value}) for value in names.values[level])
    return {x: x if isinstance(x, str) else format_number(x) for x in order if x in found}
