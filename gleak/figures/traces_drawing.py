"""Drawing of traces."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import IncompatibleError
from gleak.core.numbers import REFUSED
from gleak.experiments.axes import label_alone, label_axis, label_place
from gleak.experiments.figure_spec import FigureData, Shown
from gleak.experiments.labels import AxisLabels
from gleak.figures.panels import Colour, hues, new_panels
from gleak.figures.style import PANEL, save, save_numbers, theme
from gleak.figures.summary import CELL
from gleak.figures.traces import Traces

ABREAST = 3
COLUMNS = [*CELL, "hue", "facet", "iteration", "mean", "low", "high", "victims", "reason"]


def draw_traces(figure: Traces, material: FigureData, stem: Path) -> None:
    """Write a figure of traces and the numbers in it."""
    table = tabulate_traces(figure, material)
    save_numbers(table, stem)
    with theme():
        save(_draw(figure, material.names, table), stem)


def tabulate_traces(figure: Traces, material: FigureData) -> pd.DataFrame:
    """Every point of every trace, with what its cell is called; columns `COLUMNS`."""
    curves = [
        _trace(shown).assign(**_place(figure, material.names, shown)) for shown in material.shown
    ]
    return pd.concat(curves)[COLUMNS]


def _place(figure: Traces, names: AxisLabels, shown: Shown) -> dict[str, str]:
    facet = "" if figure.facets is None else label_alone(figure.facets, names, shown.row)
    return {**shown.row, "hue": label_place(figure.hue, names, shown.row), "facet": facet}


def _trace(shown: Shown) -> pd.DataFrame:
    """Mean, lowest and highest objective of a cell's victims at each iteration on record.

    Of a cell that was refused there is one row without numbers.

    Raises:
        IncompatibleError: the attack kept no record.
    """
    if shown.reason:
        nothing = dict.fromkeys(["iteration", "mean", "low", "high"], math.nan)
        return pd.DataFrame([{**nothing, "victims": 0, "reason": shown.reason}])
    found = Reconstruction.read(shown.reconstruction)
    if found.trace_iteration is None or found.trace_objective is None:
        raise IncompatibleError(f"{shown.reconstruction}: its attack kept no trace; leave it out")
    values = found.trace_objective
    return pd.DataFrame(
        {
            "iteration": found.trace_iteration,
            "mean": values.mean(axis=0),
            "low": values.min(axis=0),
            "high": values.max(axis=0),
            "victims": len(values),
            "reason": "",
        }
    )


def _draw(figure: Traces, names: AxisLabels, table: pd.DataFrame) -> Figure:
    facets = list(dict.fromkeys(table["facet"]))
    columns = min(ABREAST, len(facets))
    lines = math.ceil(len(facets) / columns)
    canvas, panels = new_panels(lines, columns, PANEL, sharex=True, sharey=True)
    looks = hues(table)
    for axes, facet in zip(panels.flat, facets, strict=False):
        _draw_panel(axes, table[table["facet"] == facet], looks)
        axes.set(title=facet, xlabel="iteration", ylabel=names.metric("objective"), yscale="log")
        axes.label_outer()
    for axes in panels.flat[len(facets) :]:
        axes.set_axis_off()
    handles = {
        label: line
        for axes in panels.flat
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    canvas.legend(
        handles=list(handles.values()),
        title=label_axis(figure.hue, names),
        loc="outside right center",
        frameon=False,
    )
    return canvas


def _draw_panel(axes: Axes, table: pd.DataFrame, looks: dict[str, Colour]) -> None:
    for hue, colour in looks.items():
        curve = table[table["hue"] == hue]
        if curve.empty:
            continue
        label = f"{hue}: {REFUSED}" if curve["reason"].any() else hue
        axes.plot(curve["iteration"], curve["mean"], color=colour, label=label)
        if curve["victims"].max() > 1:
            axes.fill_between(
                curve["iteration"], curve["low"], curve["high"], color=colour, alpha=0.18, lw=0
            )
