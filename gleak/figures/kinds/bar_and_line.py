"""Bar and line plots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.lazy import seaborn as sns
from gleak.core.numbers import format_number
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter
from gleak.figures.canvas.panels import (
    FAILED,
    PAPER,
    Colour,
    Slots,
    add_legend,
    draw_controls,
    facet_panels,
    hues,
    label_metric,
    mark_missing,
    new_panels,
    references,
    wrap,
)
from gleak.figures.canvas.style import NEUTRAL, PANEL, save, theme
from gleak.figures.kinds.plots import MeanPlot, categories, save_points
from gleak.figures.statistics import Row, records
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData, Over, as_list


@register("bar")
class Bar(MeanPlot):
    """Bars of the means of up to three metrics, with the paper's values and the controls.

    One row of panels for each metric; values of x are in the order of the study. Colours as in
    `gleak.figures.kinds.plots.Plot`.
    """

    y: Annotated[list[str], BeforeValidator(as_list)] = Field(
        description="metric, or a list of them, from top to bottom", min_length=1, max_length=3
    )
    log: list[str] = parameter([], "metrics on a logarithmic scale")
    over: dict[str, Over] = parameter(
        {}, "metric: all (default), successful, or successful_else_all (all if none succeeds)"
    )

    @property
    def measured(self) -> Mapping[str, Over]:
        return {metric: self.over.get(metric, "all") for metric in self.y}

    def along(self, names: AxisLabels, spec: Spec) -> float | str:
        return self.x_axis.label_category(names, spec)

    @model_validator(mode="after")
    def _check_metrics(self) -> Self:
        if len(set(self.y)) < len(self.y):
            raise ValueError(f"y {self.y} repeats a metric; name each once")
        unshown = sorted({*self.log, *self.over} - set(self.y))
        if unshown:
            raise ValueError(f"log or over name {unshown}, which are not in y")
        return self

    def draw(self, material: FigureData, stem: Path) -> None:
        points, controls = save_points(self, material, stem)
        with theme():
            save(_draw_bars(self, material.names, points, controls), stem, material.conditions)


@register("line")
class Line(MeanPlot):
    """Mean of a metric along an axis, with a band, the paper's values and the controls.

    Colours as in `gleak.figures.kinds.plots.Plot`: a cell without the field of x is the start of
    every line of its level.
    """

    y: str = Field(description="metric")
    x_missing: float = parameter(0.0, "place on x of specs that lack its field")
    x_scale: Literal["linear", "log", "symlog"] = parameter(
        "linear", "symlog is log with room for 0"
    )
    over: Over = parameter("all", "which reconstructions count; the last: all if none succeeds")

    @property
    def measured(self) -> Mapping[str, Over]:
        return {self.y: self.over}

    def along(self, names: AxisLabels, spec: Spec) -> float | str:
        place = self.x_axis.place(spec, self.x_missing)
        return place if isinstance(place, float) else self.x_axis.label(names, spec)

    def draw(self, material: FigureData, stem: Path) -> None:
        points, controls = save_points(self, material, stem)
        with theme():
            save(_draw_lines(self, material.names, points, controls), stem, material.conditions)


ALONE, BESIDE = 0.9, 0.6  # width of a bar in shares of its slot: alone, beside a marker
HEIGHT = 1.8  # inches of a panel where there are several, one below the other
HATCH: dict[str, Any] = {"hatch": "/////", "edgecolor": "white", "linewidth": 0}
MARKER: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "ls": "", "markersize": 4}
LINE_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
CROSS: dict[str, Any] = {"marker": "x", "color": "black", "ls": "", "markeredgewidth": 1}
MOST_TICKS = 8
Looks = dict[str, tuple[Colour, str]]


def _draw_bars(
    figure: Bar, names: AxisLabels, points: pd.DataFrame, controls: pd.DataFrame
) -> mpl.figure.Figure:
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
            points_here, controls_here = (table[table["facet"] == facet] for table in drawn)
            draw_controls(axes, controls_here)
            for row in records(points_here):
                _draw_bar(axes, slots, row)
            axes.set(xlabel=figure.x_axis.title(names), xlim=(-0.5, len(ticks) - 0.5))
            axes.set_xticks(range(len(ticks)), ticks)
        line[0].set_ylabel(label_metric(names, metric, figure.measured[metric]))
        if metric in figure.log:
            _make_logarithmic(line[0], pd.concat(drawn))
    for axes, facet in zip(panels[0], facets, strict=True):
        axes.set_title(facet)
    for axes in panels.flat:
        axes.label_outer()
    beside = {
        "published": mpl.lines.Line2D([], [], color=NEUTRAL, label=PAPER, **MARKER),
        "failed": mpl.patches.Patch(facecolor=NEUTRAL, label=FAILED, **HATCH),
    }
    handles = [*slots.handles, *references(points, beside)]
    add_legend(canvas, figure.hue_axis, names, handles, controls)
    return canvas


def _draw_bar(axes: mpl.axes.Axes, slots: Slots, row: Row) -> None:
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


def _make_logarithmic(axes: mpl.axes.Axes, drawn: pd.DataFrame) -> None:
    """Set a logarithmic scale that starts a decade below the data, so that no bar vanishes."""
    values = drawn[["ours", "low", "published"]].to_numpy(dtype=float)
    axes.set_yscale("log")
    if (values > 0).any():
        axes.set_ylim(bottom=10 ** math.floor(math.log10(values[values > 0].min() / 2)))


def _draw_lines(
    figure: Line, names: AxisLabels, points: pd.DataFrame, controls: pd.DataFrame
) -> mpl.figure.Figure:
    facets = list(dict.fromkeys(points["facet"]))
    canvas, panels = facet_panels(len(facets), PANEL, sharex=True, sharey=True)
    ticks: dict[float, str] = {}
    if points["x"].map(lambda x: isinstance(x, str)).any():
        labels = categories(figure, names, points)
        ticks = {float(place): label for place, label in enumerate(labels.values())}
        points = points.assign(x=points["x"].map(dict(zip(labels, ticks, strict=True))))
    points = points.astype({"x": float})
    markers = cycle(LINE_MARKERS)
    looks = {hue: (colour, next(markers)) for hue, colour in hues(points).items()}
    label = label_metric(names, figure.y, figure.over)
    for axes, facet in zip(panels, facets, strict=True):
        _draw_line_panel(axes, points[points["facet"] == facet], looks)
        draw_controls(axes, controls[controls["facet"] == facet])
        axes.set(title=facet, xlabel=figure.x_axis.title(names), ylabel=label)
        _scale(axes, figure, points, ticks)
        axes.label_outer()
    add_legend(canvas, figure.hue_axis, names, _line_handles(points, looks), controls)
    return canvas


def _draw_line_panel(axes: mpl.axes.Axes, points: pd.DataFrame, looks: Looks) -> None:
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


def _scale(
    axes: mpl.axes.Axes, figure: Line, points: pd.DataFrame, ticks: dict[float, str]
) -> None:
    places = sorted(set(points["x"]))
    positive = [x for x in places if x > 0]
    if figure.x_scale == "symlog" and positive:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.6)
        axes.set_xlim(-0.15 * positive[0], 1.25 * positive[-1])
    elif figure.x_scale == "log":
        axes.set_xscale("log")
    if len(places) <= MOST_TICKS:
        axes.xaxis.set_major_locator(mpl.ticker.FixedLocator(places))
        axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda x, _: format_number(x)))
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    if ticks:
        axes.set_xticks(list(ticks), wrap(ticks.values()))


def _line_handles(points: pd.DataFrame, looks: Looks) -> list[mpl.artist.Artist]:
    lines: list[mpl.artist.Artist] = [
        mpl.lines.Line2D([], [], color=colour, marker=marker, label=hue, markeredgewidth=0)
        for hue, (colour, marker) in looks.items()
        if hue
    ]
    paper: dict[str, Any] = {"color": NEUTRAL, "marker": "o", "markerfacecolor": "white"}
    beside = {
        "published": mpl.lines.Line2D([], [], ls="--", lw=1, label=PAPER, **paper),
        "failed": mpl.lines.Line2D([], [], label=FAILED, **CROSS),
    }
    return lines + references(points, beside)
