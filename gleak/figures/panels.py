"""The panels of plots: their grid, the controls in them, the legend beside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gleak.core.numbers import format_value
from gleak.experiments.axes import label_axis
from gleak.experiments.figure_spec import FigureData, Over
from gleak.experiments.labels import BLIND, TRUTH, AxisLabels
from gleak.figures.plot import MeanPlot, Plot
from gleak.figures.points import COLUMNS, summarise_controls, summarise_points
from gleak.figures.style import NEUTRAL, colours, new_figure, save, save_numbers, theme
from gleak.figures.summary import records

CONTROLS = {TRUTH: (0, (6, 2)), BLIND: (0, (1, 1.5))}
PAPER, FAILED = "paper", "none succeeded:\nover the failed"
OF = {"all": "", "successful": "of successes", "successful_else_all": "of successes, if any"}
LEGEND = 1.3  # inches beside the panels
LONGEST_TICK = 12  # characters of a line below a tick
Colour = tuple[float, float, float]
Draw = Callable[[Any, AxisLabels, pd.DataFrame, pd.DataFrame], Figure]


def draw_plot(figure: MeanPlot, material: FigureData, stem: Path, draw: Draw) -> None:
    """Write a figure and the numbers in it.

    Args:
        figure: a line or bar figure's spec.
        material: what it is drawn from.
        stem: the files, without their suffixes.
        draw: given the spec, the names, the points and the controls.
    """
    points = summarise_points(figure, material)
    controls = summarise_controls(figure, material)
    save_numbers(pd.concat([points, controls])[COLUMNS], stem)
    with theme():
        save(draw(figure, material.names, points, controls), stem)


def new_panels(
    lines: int, columns: int, size: tuple[float, float], **shared: Any
) -> tuple[Figure, np.ndarray]:
    """A figure and its panels, Shape (lines, columns), each of a size in inches."""
    canvas = new_figure(columns * size[0] + LEGEND, lines * size[1])
    canvas.set_layout_engine("constrained")
    panels = canvas.subplots(lines, columns, squeeze=False, **shared)
    for axes in panels.flat:
        sns.despine(ax=axes)
    return canvas, panels


def draw_controls(axes: Axes, controls: pd.DataFrame) -> None:
    """Lines across a panel."""
    for row in records(controls):
        axes.axhline(row["ours"], color=NEUTRAL, lw=1, ls=CONTROLS[row["attack"]], zorder=1)


def mark_missing(axes: Axes, x: float, colour: Colour, reason: str) -> None:
    """At the foot of a panel, a dash where there is no value or n/a where a cell was refused."""
    look: dict[str, Any] = {"ha": "center", "weight": "bold", "color": colour}
    axes.text(x, 0.01, format_value(math.nan, reason), transform=axes.get_xaxis_transform(), **look)


def label_metric(names: AxisLabels, metric: str, over: Over) -> str:
    """What stands beside y."""
    return f"{names.metric(metric)}\n{OF[over]}".strip()


def wrap(labels: Iterable[str]) -> list[str]:
    """Labels below ticks, long ones on several lines."""
    pieces = [label.replace(" (", "\n(").splitlines() for label in labels]
    return ["\n".join(fill(p, LONGEST_TICK, break_long_words=False) for p in ps) for ps in pieces]


def hues(points: pd.DataFrame) -> dict[str, Colour]:
    """The colour of each hue."""
    found = list(dict.fromkeys(points["hue"]))
    return dict(zip(found, colours(len(found)), strict=True))


def add_legend(
    canvas: Figure, figure: Plot, names: AxisLabels, own: Sequence[Artist], controls: pd.DataFrame
) -> None:
    """The legend beside the panels: a figure's own handles, then the controls that are drawn."""
    drawn = set(controls.loc[controls["ours"].notna(), "attack"])
    lines = [
        Line2D([], [], color=NEUTRAL, lw=1, ls=style, label=names.label("attack", control))
        for control, style in CONTROLS.items()
        if control in drawn
    ]
    title = "" if figure.hue is None else label_axis(figure.hue, names)
    handles = [*own, *lines]
    canvas.legend(handles=handles, title=title, loc="outside right center", frameon=False)


def references(points: pd.DataFrame, looks: Mapping[str, Artist]) -> list[Artist]:
    """The handles of what is drawn beside our means: the paper's, and means over the failed.

    Args:
        points: from `summarise_points`.
        looks: a handle for ``published`` and for ``failed``.
    """
    there = {"published": points["published"].notna().any(), "failed": points["failed"].any()}
    return [handle for column, handle in looks.items() if there[column]]
