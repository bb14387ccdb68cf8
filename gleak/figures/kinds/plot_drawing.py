"""Drawing of bar and line plots."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from gleak.core.numbers import format_number
from gleak.figures.canvas.panels import (
    FAILED,
    PAPER,
    Colour,
    Slots,
    add_legend,
    draw_controls,
    hues,
    label_metric,
    mark_missing,
    new_panels,
    references,
    wrap,
)
from gleak.figures.canvas.style import NEUTRAL, PANEL, save, save_numbers, theme
from gleak.figures.kinds.base import MeanPlot
from gleak.figures.kinds.plots import Bar, Line
from gleak.figures.points import COLUMNS, categories, summarise_controls, summarise_points
from gleak.figures.statistics import Row, records
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData

ALONE, BESIDE = 0.9, 0.6  # width of a bar in shares of its slot: alone, beside a marker
HEIGHT = 1.8  # inches of a panel where there are several, one below the other
HATCH: dict[str, Any] = {"hatch": "/////", "edgecolor": "white", "linewidth": 0}
MARKER: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "ls": "", "markersize": 4}


LINE_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
CROSS: dict[str, Any] = {"marker": "x", "color": "black", "ls": "", "markeredgewidth": 1}
ABREAST = 3
MOST_TICKS = 8
Looks = dict[str, tuple[Colour, str]]
Draw = Callable[[Any, AxisLabels, pd.DataFrame, pd.DataFrame], Figure]


def draw_plot(figure: MeanPlot, material: FigureData, stem: Path, draw: Draw) -> None:
    """Write a figure and the numbers in it.

    Args:
        figure: spec of a line or bar plot.
        material: data it is drawn from.
        stem: the files, without their suffixes.
        draw: function of the spec, the labels, the points and the controls.
    """
    points = summarise_points(figure, material)
    controls = summarise_controls(figure, material)
    save_numbers(pd.concat([points, controls])[COLUMNS], stem)
    with theme():
        save(draw(figure, material.names, points, controls), stem, material.conditions)


def draw_bar(figure: Bar, material: FigureData, stem: Path) -> None:
    """Write a bar plot and the numbers in it."""
    draw_plot(figure, material, stem, _draw_bars)


def _draw_bars(
    figure: Bar, names: AxisLabels, points: pd.DataFrame, controls: pd.DataFrame
) -> Figure:
    controls = controls[(controls["ours"] > 0) | ~controls["shown"].isin(figure.log)]
    facets = list(dict.fromkeys(points["facet"]))
    labels = categories(figure, names, points)
    share = BESIDE if points["published"].notna().any() else ALONE
    slots = Slots({x: float(i) for i, x in enumerate(labels)}, hues(points), share)
    ticks = wrap(labels.values())
    size = (slots.inches(ticks), PANEL[1] if len(figure.y) == 1 else HEIGHT)
    canvas, panels = new_panels(len(figure.y), len(facets), size, sharex=True, sharey="row")
    for line, metric in zip(panels, figure.y, strict=True):
        drawn = [table[table["shown"] == metric] for table in (points, controls)]
        for axes, facet in zip(line, facets, strict=True):
            _draw_bar_panel(axes, slots, *(table[table["facet"] == facet] for table in drawn))
            axes.set(xlabel=figure.x_axis.title(names), xlim=(-0.5, len(ticks) - 0.5))
            axes.set_xticks(range(len(ticks)), ticks)
        line[0].set_ylabel(label_metric(names, metric, figure.measured[metric]))
        if metric in figure.log:
            _make_logarithmic(line[0], pd.concat(drawn))
    for axes, facet in zip(panels[0], facets, strict=True):
        axes.set_title(facet)
    for axes in panels.flat:
        axes.label_outer()
    add_legend(canvas, figure.hue_axis, names, _bar_handles(points, slots), controls)
    return canvas


def _draw_bar_panel(axes: Axes, slots: Slots, points: pd.DataFrame, controls: pd.DataFrame) -> None:
    draw_controls(axes, controls)
    for row in records(points):
        _draw_bar(axes, slots, row)


def _draw_bar(axes: Axes, slots: Slots, row: Row) -> None:
    """Draw a bar with its error band, or a dash, and the paper's value beside it."""
    key, colour = (row["x"], row["hue"]), slots.colours[row["hue"]]
    x = slots.bar(*key)
    if math.isnan(row["ours"]):
        mark_missing(axes, x, colour, row["reason"])
    else:
        look = HATCH if row["failed"] else {"linewidth": 0}
        axes.bar(x, row["ours"], slots.width, color=colour, **look)
        axes.vlines(x, row["low"], row["high"], color="0.2", lw=0.9)
    axes.plot(slots.marker(*key), row["published"], color=colour, **MARKER)


def _make_logarithmic(axes: Axes, drawn: pd.DataFrame) -> None:
    """Set a logarithmic scale that starts a decade below the data, so that no bar vanishes."""
    values = drawn[["ours", "low", "published"]].to_numpy(dtype=float)
    axes.set_yscale("log")
    if (values > 0).any():
        axes.set_ylim(bottom=10 ** math.floor(math.log10(values[values > 0].min() / 2)))


def _bar_handles(points: pd.DataFrame, slots: Slots) -> list[Artist]:
    bars: list[Artist] = [
        Patch(color=colour, label=hue) for hue, colour in slots.colours.items() if hue
    ]
    beside = {
        "published": Line2D([], [], color=NEUTRAL, label=PAPER, **MARKER),
        "failed": Patch(facecolor=NEUTRAL, label=FAILED, **HATCH),
    }
    return bars + references(points, beside)


def draw_line(figure: Line, material: FigureData, stem: Path) -> None:
    """Write a line plot and the numbers in it."""
    draw_plot(figure, material, stem, _draw_lines)


def _draw_lines(
    figure: Line, names: AxisLabels, points: pd.DataFrame, controls: pd.DataFrame
) -> Figure:
    facets = list(dict.fromkeys(points["facet"]))
    columns = min(ABREAST, len(facets))
    lines = math.ceil(len(facets) / columns)
    canvas, panels = new_panels(lines, columns, PANEL, sharex=True, sharey=True)
    points, ticks = _positions(figure, names, points)
    looks = _looks(points)
    label = label_metric(names, figure.y, figure.over)
    for axes, facet in zip(panels.flat, facets, strict=False):
        _draw_line_panel(axes, points[points["facet"] == facet], looks)
        draw_controls(axes, controls[controls["facet"] == facet])
        axes.set(title=facet, xlabel=figure.x_axis.title(names), ylabel=label)
        _scale(axes, figure, points, ticks)
        axes.label_outer()
    for axes in panels.flat[len(facets) :]:
        axes.set_axis_off()
    add_legend(canvas, figure.hue_axis, names, _line_handles(points, looks), controls)
    return canvas


def _positions(
    figure: Line, names: AxisLabels, points: pd.DataFrame
) -> tuple[pd.DataFrame, dict[float, str]]:
    """Return the points with a numeric x, and the tick labels if x is not a number."""
    if not points["x"].map(lambda x: isinstance(x, str)).any():
        return points.astype({"x": float}), {}
    labels = categories(figure, names, points)
    places = {x: float(place) for place, x in enumerate(labels)}
    return points.assign(x=points["x"].map(places)), dict(enumerate(labels.values()))


def _looks(points: pd.DataFrame) -> Looks:
    """Return the colour and marker of each line."""
    return {
        hue: (colour, LINE_MARKERS[i % len(LINE_MARKERS)])
        for i, (hue, colour) in enumerate(hues(points).items())
    }


def _draw_line_panel(axes: Axes, points: pd.DataFrame, looks: Looks) -> None:
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
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_number(x)))
        axes.xaxis.set_minor_locator(NullLocator())
    if ticks:
        axes.set_xticks(list(ticks), wrap(ticks.values()))


def _line_handles(points: pd.DataFrame, looks: Looks) -> list[Artist]:
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
