"""Drawing of convergence curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gleak.artifacts.knowledge import Knowledge
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import IncompatibleError
from gleak.core.numbers import REFUSED
from gleak.figures.canvas.panels import Colour, hues, new_panels
from gleak.figures.canvas.style import PANEL, colours, save, save_numbers, theme
from gleak.figures.kinds.convergence import Losses, Traces
from gleak.figures.statistics import CELL
from gleak.knowledge.base import Pretraining
from gleak.studies.axes import Axis
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData, Shown
from gleak.studies.refusals import levels_of

ABREAST = 3
TRACE_COLUMNS = [*CELL, "hue", "facet", "iteration", "mean", "low", "high", "victims", "reason"]


def draw_losses(figure: Losses, material: FigureData, stem: Path) -> None:
    """Write training curves and the numbers in them."""
    table = tabulate_losses([Knowledge.read(path) for path in material.trained])
    save_numbers(table, stem)
    with theme():
        save(_draw_losses(figure, table), stem, material.conditions)


def tabulate_losses(trained: Sequence[Knowledge]) -> pd.DataFrame:
    """Tabulate every point of every curve: dataset, knowledge, loss, step and value."""
    curves = [
        pd.DataFrame({"loss": name, "step": one.loss_step, "value": values}).assign(
            dataset=one.dataset, knowledge=one.knowledge
        )
        for one in trained
        for name, values in one.losses.items()
    ]
    return pd.concat(curves)[["dataset", "knowledge", "loss", "step", "value"]]


def _draw_losses(figure: Losses, table: pd.DataFrame) -> Figure:
    names = list(dict.fromkeys(table["loss"]))
    columns = min(ABREAST, len(names))
    canvas, panels = new_panels(math.ceil(len(names) / columns), columns, PANEL)
    shown = list(dict.fromkeys(zip(table["dataset"], table["knowledge"], strict=True)))
    called = figure.call([Pretraining.parse(*one) for one in shown])
    for axes, name in zip(panels.flat, names, strict=False):
        for (dataset, spec), label, colour in zip(shown, called, colours(len(shown)), strict=True):
            own = (table["dataset"] == dataset) & (table["knowledge"] == spec)
            curve = table[own & (table["loss"] == name)]
            axes.plot(curve["step"], curve["value"], color=colour, label=label)
        axes.set(xlabel="step", ylabel=figure.labels.get(name, name), yscale="log")
    for axes in panels.flat[len(names) :]:
        axes.set_axis_off()
    handles, labels = panels.flat[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside right center", frameon=False)
    return canvas


def draw_traces(figure: Traces, material: FigureData, stem: Path) -> None:
    """Write traces of objectives and the numbers in them."""
    table = tabulate_traces(figure, material)
    save_numbers(table, stem)
    with theme():
        save(_draw_traces(figure, material.names, table), stem, material.conditions)


def tabulate_traces(figure: Traces, material: FigureData) -> pd.DataFrame:
    """Tabulate every point of every trace with the labels of its cell; columns `TRACE_COLUMNS`."""
    curves = [
        _trace(shown).assign(**_place(figure, material.names, shown)) for shown in material.shown
    ]
    return pd.concat(curves)[TRACE_COLUMNS]


def _place(figure: Traces, names: AxisLabels, shown: Shown) -> dict[str, str]:
    labels = {"hue": Axis.read(figure.hue).label(names, Axis.read(figure.hue).spec(shown.cell))}
    labels["facet"] = ""
    if figure.facets is not None:
        facets = Axis.read(figure.facets)
        labels["facet"] = facets.label_alone(names, facets.spec(shown.cell))
    return {**levels_of(shown.cell), **labels}


def _trace(shown: Shown) -> pd.DataFrame:
    """Compute the mean, minimum and maximum objective over victims at each recorded iteration.

    A refused cell has one row without numbers.

    Raises:
        IncompatibleError: if the attack recorded no trace.
    """
    if shown.reason:
        nothing = dict.fromkeys(["iteration", "mean", "low", "high"], math.nan)
        return pd.DataFrame([{**nothing, "victims": 0, "reason": shown.reason}])
    reconstruction = Reconstruction.read(shown.reconstruction)
    if reconstruction.trace_iteration is None or reconstruction.trace_objective is None:
        raise IncompatibleError(
            f"{shown.reconstruction}: its attack recorded no trace; exclude it under where"
        )
    values = reconstruction.trace_objective
    return pd.DataFrame(
        {
            "iteration": reconstruction.trace_iteration,
            "mean": values.mean(axis=0),
            "low": values.min(axis=0),
            "high": values.max(axis=0),
            "victims": len(values),
            "reason": "",
        }
    )


def _draw_traces(figure: Traces, names: AxisLabels, table: pd.DataFrame) -> Figure:
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
        title=Axis.read(figure.hue).title(names),
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
