"""Drawing of bars."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gleak.experiments.axes import label_axis
from gleak.experiments.figure_spec import FigureData
from gleak.experiments.labels import AxisLabels
from gleak.figures.bar import Bar
from gleak.figures.panels import (
    FAILED,
    PAPER,
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
from gleak.figures.slots import Slots
from gleak.figures.style import NEUTRAL, PANEL
from gleak.figures.summary import Row, records

ALONE, BESIDE = 0.9, 0.6  # width of a bar in shares of its slot: alone, beside a marker
HEIGHT = 1.8  # inches of a panel where there are several, one below the other
HATCH: dict[str, Any] = {"hatch": "/////", "edgecolor": "white", "linewidth": 0}
MARKER: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "ls": "", "markersize": 4}


def draw_bar(figure: Bar, material: FigureData, stem: Path) -> None:
    """Write a bar figure and the numbers in it."""
    draw_plot(figure, material, stem, _draw)


def _draw(figure: Bar, names: AxisLabels, points: pd.DataFrame, controls: pd.DataFrame) -> Figure:
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
            _draw_panel(axes, slots, *(table[table["facet"] == facet] for table in drawn))
            axes.set(xlabel=label_axis(figure.x, names), xlim=(-0.5, len(ticks) - 0.5))
            axes.set_xticks(range(len(ticks)), ticks)
        line[0].set_ylabel(label_metric(names, metric, figure.measured[metric]))
        if metric in figure.log:
            _make_logarithmic(line[0], pd.concat(drawn))
    for axes, facet in zip(panels[0], facets, strict=True):
        axes.set_title(facet)
    for axes in panels.flat:
        axes.label_outer()
    add_legend(canvas, figure, names, _handles(points, slots), controls)
    return canvas


def _draw_panel(axes: Axes, slots: Slots, points: pd.DataFrame, controls: pd.DataFrame) -> None:
    draw_controls(axes, controls)
    for row in records(points):
        _draw_bar(axes, slots, row)


def _draw_bar(axes: Axes, slots: Slots, row: Row) -> None:
    """One bar with its interval, a dash where there is none, and the paper's value beside it."""
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
    """A logarithmic scale from the decade below everything drawn, so that no bar vanishes."""
    values = drawn[["ours", "low", "published"]].to_numpy(dtype=float)
    axes.set_yscale("log")
    if (values > 0).any():
        axes.set_ylim(bottom=10 ** math.floor(math.log10(values[values > 0].min() / 2)))


def _handles(points: pd.DataFrame, slots: Slots) -> list[Artist]:
    bars: list[Artist] = [
        Patch(color=colour, label=hue) for hue, colour in slots.colours.items() if hue
    ]
    beside = {
        "published": Line2D([], [], color=NEUTRAL, label=PAPER, **MARKER),
        "failed": Patch(facecolor=NEUTRAL, label=FAILED, **HATCH),
    }
    return bars + references(points, beside)
