"""Drawing of lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator
from scipy.stats import bootstrap

from gleak.figures.axes import has_field, label_axis, label_place, level_of, place
from gleak.figures.base import Material
from gleak.figures.line import Line
from gleak.figures.names import BLIND, TRUTH, Names
from gleak.figures.published import add_published
from gleak.figures.style import NEUTRAL, PANEL, colours, new_figure, save, save_numbers, theme
from gleak.figures.summary import CELL, VICTIM, Row, cells_of, counted, records, select, summarise
from gleak.registry import parse

CONTROLS = {TRUTH: (0, (6, 2)), BLIND: (0, (1, 1.5))}
PAPER = "paper"
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
RESAMPLES = 2000
ABREAST = 3
MOST_TICKS = 8
NUMBERS = ["metric", "statistic", "over", "x", "hue", "facet", "ours", "low", "high"]
BOOKS = ["published", "count", "rows", "stand_in"]


def draw_line(figure: Line, material: Material, stem: Path) -> None:
    """Write a line figure and the numbers in it."""
    points = summarise_points(figure, material)
    baselines = summarise_controls(figure, material)
    save_numbers(pd.concat([points, baselines])[[*CELL, *NUMBERS, *BOOKS]], stem)
    with theme():
        save(_draw(figure, material.names, points, baselines), stem)


def summarise_points(figure: Line, material: Material) -> pd.DataFrame:
    """One row per point: its cell, place, mean, band and published value, in the study's order."""
    names, scores = material.names, material.scores
    chosen = pd.DataFrame(figure.chosen(names, cells_of(scores)), columns=CELL)
    metric = str(parse("metric", figure.y))
    summary = chosen.merge(summarise(scores, metric, "mean", figure.over))
    summary = summary.merge(_bands(figure, scores, metric), on=CELL, how="left")
    compared = add_published(summary, material.published, names)
    placed = [point for row in records(compared) for point in _place(figure, names, row, compared)]
    return pd.DataFrame(_sort(figure, names, placed))


def summarise_controls(figure: Line, material: Material) -> pd.DataFrame:
    """The controls' mean in each panel, over all cells there; one row per panel and control."""
    names, metric = material.names, str(parse("metric", figure.y))
    wanted = {k: v for k, v in names.select(figure.where).items() if k != "attack"}
    scores = select(material.scores, wanted)
    rows = [
        {**row, "facet": _facet(figure, names, row)}
        for row in records(summarise(scores, metric))
        if row["attack"] in CONTROLS
    ]
    columns = [*CELL, *NUMBERS, *BOOKS]
    table = pd.DataFrame(rows, columns=columns)
    means = table.groupby(["facet", "attack"], as_index=False, sort=False).agg(
        {
            "ours": "mean",
            "count": "sum",
            "rows": "sum",
            "metric": "first",
            "statistic": "first",
            "over": "first",
        }
    )
    return means.reindex(columns=columns)


def _bands(figure: Line, scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Low and high of each cell: over victims, whose samples are not independent."""
    victims = counted(scores, metric, figure.over).groupby(VICTIM, as_index=False)["value"].mean()
    band = interval if figure.error == "ci" else deviation
    rows = [
        {**dict(zip(CELL, cell, strict=True)), "low": low, "high": high}
        for cell, values in victims.groupby(CELL)["value"]
        for low, high in [band(values.to_numpy())]
    ]
    return pd.DataFrame(rows, columns=[*CELL, "low", "high"])


def interval(values: np.ndarray) -> tuple[float, float]:
    """95% bootstrapped confidence interval of the mean (percentiles); none for one value."""
    if len(values) < 2:
        return math.nan, math.nan
    found = bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(found.low), float(found.high)


def deviation(values: np.ndarray) -> tuple[float, float]:
    """One standard deviation of the sample to either side of the mean; none for one value."""
    if len(values) < 2:
        return math.nan, math.nan
    return float(values.mean() - values.std(ddof=1)), float(values.mean() + values.std(ddof=1))


def _place(figure: Line, names: Names, row: Row, compared: pd.DataFrame) -> list[Row]:
    """The point of a cell; for the shared start of several lines, one on each of them."""
    x = place(figure.x, row[level_of(figure.x)], figure.x_missing)
    placed = {**row, "x": x, "facet": _facet(figure, names, row)}
    if figure.hue is None:
        return [{**placed, "hue": ""}]
    level = level_of(figure.hue)
    if level != level_of(figure.x) or has_field(figure.x, row[level]):
        return [{**placed, "hue": label_place(figure.hue, names, row)}]
    lines = [v for v in names.values[level] if v in set(compared[level]) and has_field(figure.x, v)]
    labels = [label_place(figure.hue, names, {level: value}) for value in lines]
    return [{**placed, "hue": label} for label in dict.fromkeys(labels)]


def _facet(figure: Line, names: Names, row: Row) -> str:
    return "" if figure.facets is None else label_place(figure.facets, names, row)


def _rank(axis: str | None, names: Names) -> dict[str, int]:
    """Labels of an axis -> their place in the order of the study."""
    if axis is None:
        return {"": 0}
    level = level_of(axis)
    labels = [label_place(axis, names, {level: value}) for value in names.values[level]]
    return {label: i for i, label in enumerate(dict.fromkeys(labels))}


def _sort(figure: Line, names: Names, points: list[Row]) -> list[Row]:
    """Panels and lines in the order of the study, points along x."""
    facets, hues = _rank(figure.facets, names), _rank(figure.hue, names)
    values = names.values[level_of(figure.x)]

    def key(row: Row) -> tuple[float, ...]:
        x = row["x"]
        along = values.index(row[level_of(figure.x)]) if isinstance(x, str) else x
        return facets[row["facet"]], hues[row["hue"]], along

    return sorted(points, key=key)


def _draw(figure: Line, names: Names, points: pd.DataFrame, baselines: pd.DataFrame) -> Figure:
    facets = list(dict.fromkeys(points["facet"]))
    columns = min(ABREAST, len(facets))
    lines = math.ceil(len(facets) / columns)
    canvas = new_figure(columns * PANEL[0] + 1.3, lines * PANEL[1])
    canvas.set_layout_engine("constrained")
    panels = canvas.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    points, ticks = _positions(figure, names, points)
    for axes, facet in zip(panels.flat, facets, strict=False):
        _draw_panel(axes, points[points["facet"] == facet], _hues(points))
        for row in records(baselines[baselines["facet"] == facet]):
            style = CONTROLS[row["attack"]]
            axes.axhline(row["ours"], color=NEUTRAL, lw=1, ls=style, zorder=1)
        axes.set(title=facet, xlabel=label_axis(figure.x, names), ylabel=names.metric(figure.y))
        _scale(axes, figure, points, ticks)
        axes.label_outer()
        sns.despine(ax=axes)
    for axes in panels.flat[len(facets) :]:
        axes.set_axis_off()
    title = "" if figure.hue is None else label_axis(figure.hue, names)
    handles = _handles(points, baselines, names)
    canvas.legend(handles=handles, title=title, loc="outside right center", frameon=False)
    return canvas


def _positions(
    figure: Line, names: Names, points: pd.DataFrame
) -> tuple[pd.DataFrame, dict[float, str]]:
    """Points with a numeric x, and the label of each place if x is not a number."""
    if not points["x"].map(lambda x: isinstance(x, str)).any():
        return points.astype({"x": float}), {}
    labels = [label_place(figure.x, names, row) for row in records(points)]
    order = {label: float(i) for i, label in enumerate(_rank(figure.x, names)) if label in labels}
    places = {label: float(i) for i, label in enumerate(order)}
    return points.assign(x=[places[label] for label in labels]), {v: k for k, v in places.items()}


def _hues(points: pd.DataFrame) -> dict[str, tuple[tuple[float, float, float], str]]:
    """The colour and marker of each line."""
    hues = list(dict.fromkeys(points["hue"]))
    marks = [MARKERS[i % len(MARKERS)] for i in range(len(hues))]
    return dict(zip(hues, zip(colours(len(hues)), marks, strict=True), strict=True))


def _draw_panel(
    axes: Axes, points: pd.DataFrame, hues: dict[str, tuple[tuple[float, float, float], str]]
) -> None:
    for hue, (colour, marker) in hues.items():
        line = points[points["hue"] == hue]
        look: dict[str, Any] = {"color": colour, "marker": marker}
        sns.lineplot(line, x="x", y="ours", errorbar=None, ax=axes, markeredgewidth=0, **look)
        axes.fill_between(line["x"], line["low"], line["high"], color=colour, alpha=0.18, lw=0)
        axes.plot(line["x"], line["published"], ls="--", lw=1, markerfacecolor="white", **look)


def _scale(axes: Axes, figure: Line, points: pd.DataFrame, ticks: dict[float, str]) -> None:
    places = sorted(set(points["x"]))
    positive = [x for x in places if x > 0]
    if figure.x_scale == "symlog" and positive:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.6)
        axes.set_xlim(-0.15 * positive[0], 1.25 * positive[-1])
    elif figure.x_scale == "log":
        axes.set_xscale("log")
    if len(places) <= MOST_TICKS:
        axes.xaxis.set_major_locator(FixedLocator(places))
        axes.xaxis.set_minor_locator(NullLocator())
    if ticks:
        axes.set_xticks(list(ticks), list(ticks.values()))


def _handles(points: pd.DataFrame, baselines: pd.DataFrame, names: Names) -> list[Line2D]:
    handles = [
        Line2D([], [], color=colour, marker=marker, label=hue, markeredgewidth=0)
        for hue, (colour, marker) in _hues(points).items()
        if hue
    ]
    if points["published"].notna().any():
        look: dict[str, Any] = {"color": NEUTRAL, "marker": "o", "markerfacecolor": "white"}
        handles.append(Line2D([], [], ls="--", lw=1, label=PAPER, **look))
    found = set(baselines["attack"])
    return handles + [
        Line2D([], [], color=NEUTRAL, lw=1, ls=style, label=names.label("attack", control))
        for control, style in CONTROLS.items()
        if control in found
    ]
