"""Drawing of lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from gleak.experiments.axes import label_axis
from gleak.experiments.figure_spec import FigureData
from gleak.experiments.labels import AxisLabels
from gleak.figures.line import Line
from gleak.figures.panels import (
    FAILED,
    PAPER,
    Colour,
    add_legend,
    draw_controls,
    draw_plot,
    hues,
    label_metric,
    mark_missing,
    new_panels,
    references,
    wrap,
)
from gleak.figures.points import categories
from gleak.figures.style import NEUTRAL, PANEL

MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
CROSS: dict[str, Any] = {"marker": "x", "color": "black", "ls": "", "markeredgewidth": 1}
ABREAST = 3
MOST_TICKS = 8
Looks = dict[str, tuple[Colour, str]]


def draw_line(figure: Line, material: FigureData, stem: Path) -> None:
    """Write a line figure and the numbers in it."""
    draw_plot(figure, material, stem, _draw)


def _draw(figure: Line, names: AxisLabels, points: pd.DataFrame, controls: pd.DataFrame) -> Figure:
    facets = list(dict.fromkeys(points["facet"]))
    columns = min(ABREAST, len(facets))
    lines = math.ceil(len(facets) / columns)
    canvas, panels = new_panels(lines, columns, PANEL, sharex=True, sharey=True)
    points, ticks = _positions(figure, names, points)
    looks = _looks(points)
    label = label_metric(names, figure.y, figure.over)
    for axes, facet in zip(panels.flat, facets, strict=False):
        _draw_panel(axes, points[points["facet"] == facet], looks)
        draw_controls(axes, controls[controls["facet"] == facet])
        axes.set(title=facet, xlabel=label_axis(figure.x, names), ylabel=label)
        _scale(axes, figure, points, ticks)
        axes.label_outer()
    for axes in panels.flat[len(facets) :]:
        axes.set_axis_off()
    add_legend(canvas, figure, names, _handles(points, looks), controls)
    return canvas


def _positions(
    figure: Line, names: AxisLabels, points: pd.DataFrame
) -> tuple[pd.DataFrame, dict[float, str]]:
    """Points with a numeric x, and the label of each place if x is not a number."""
    if not points["x"].map(lambda x: isinstance(x, str)).any():
        return points.astype({"x": float}), {}
    labels = categories(figure, names, points)
    places = {x: float(place) for place, x in enumerate(labels)}
    return points.assign(x=points["x"].map(places)), dict(enumerate(labels.values()))


def _looks(points: pd.DataFrame) -> Looks:
    """The colour and marker of each line."""
    return {
        hue: (colour, MARKERS[i % len(MARKERS)])
        for i, (hue, colour) in enumerate(hues(points).items())
    }


def _draw_panel(axes: Axes, points: pd.DataFrame, looks: Looks) -> None:
    for hue, (colour, marker) in looks.items():
        line = points[points["hue"] == hue]
        look: dict[str, Any] = {"color": colour, "marker": marker}
        sns.lineplot(line, x="x", y="ours", errorbar=None, ax=axes, markeredgewidth=0, **look)
        axes.fill_between(line["x"], line["low"], line["high"], color=colour, alpha=0.18, lw=0)
        axes.plot(line["x"], line["published"], ls="--", lw=1, markerfacecolor="white", **look)
        for x, reason in line.loc[line["reason"] != "", ["x", "reason"]].to_numpy():
            mark_missing(axes, x, colour, reason)
    failed = points[points["failed"]]
    axes.plot(failed["x"], failed["ours"], zorder=3, **CROSS)


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
        axes.set_xticks(list(ticks), wrap(ticks.values()))


def _handles(points: pd.DataFrame, looks: Looks) -> list[Artist]:
    lines: list[Artist] = [
        Line2D([], [], color=colour, marker=marker, label=hue, markeredgewidth=0)
        for hue, (colour, marker) in looks.items()
        if hue
    ]
    paper: dict[str, Any] = {"color": NEUTRAL, "marker": "o", "markerfacecolor": "white"}
    beside = {
        "published": Line2D([], [], ls="--", lw=1, label=PAPER, **paper),
        "failed": Line2D([], [], label=FAILED, **CROSS),
    }
    return lines + references(points, beside)
