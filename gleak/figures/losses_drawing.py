"""Drawing of curves of losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from gleak.artifacts.knowledge import Knowledge
from gleak.experiments.figure_spec import FigureData
from gleak.figures.losses import Losses
from gleak.figures.panels import new_panels
from gleak.figures.style import PANEL, colours, save, save_numbers, theme
from gleak.knowledge.base import Pretraining

ABREAST = 3


def draw_losses(figure: Losses, material: FigureData, stem: Path) -> None:
    """Write a figure of losses and the numbers in it."""
    table = tabulate_losses([Knowledge.read(path) for path in material.trained])
    save_numbers(table, stem)
    with theme():
        save(_draw(figure, table), stem)


def tabulate_losses(trained: Sequence[Knowledge]) -> pd.DataFrame:
    """Every point of every curve: dataset, knowledge, loss, step and value."""
    curves = [
        pd.DataFrame({"loss": name, "step": one.loss_step, "value": values}).assign(
            dataset=one.dataset, knowledge=one.knowledge
        )
        for one in trained
        for name, values in one.losses.items()
    ]
    return pd.concat(curves)[["dataset", "knowledge", "loss", "step", "value"]]


def _draw(figure: Losses, table: pd.DataFrame) -> Figure:
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
        axes.set(xlabel="step", ylabel=figure.label(name), yscale="log")
    for axes in panels.flat[len(names) :]:
        axes.set_axis_off()
    handles, labels = panels.flat[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside right center", frameon=False)
    return canvas
