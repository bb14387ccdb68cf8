"""Drawing of distributions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gleak.experiments.axes import label_axis
from gleak.experiments.figure_spec import FigureData
from gleak.experiments.labels import AxisLabels
from gleak.figures.distribution import Distribution
from gleak.figures.panels import (
    add_legend,
    draw_controls,
    hues,
    label_metric,
    mark_missing,
    new_panels,
    wrap,
)
from gleak.figures.points import categories
from gleak.figures.quantiles import (
    COLUMNS,
    PLACE,
    place_values,
    summarise_control_means,
    summarise_quantiles,
)
from gleak.figures.slots import Slots
from gleak.figures.style import NEUTRAL, PANEL, save, save_numbers, theme
from gleak.figures.summary import Row, records

BOX = 0.5  # width of a box in shares of its slot; its values stand in the rest
FILLED = 0.8  # share of that rest which the values spread over
GOLDEN = 0.618034
KEY = "quartiles,\n5% to 95%"
STATISTICS = {"whislo": "q0.05", "q1": "q0.25", "med": "q0.5", "q3": "q0.75", "whishi": "q0.95"}
FAINTEST, FAINT = 0.2, 0.5  # opacity of a point among thousands and among few
DOTS: dict[str, Any] = {"s": 3, "linewidths": 0, "rasterized": True}
Values = dict[tuple[str, ...], pd.Series]


def draw_distribution(figure: Distribution, material: FigureData, stem: Path) -> None:
    """Write a distribution figure and the quantiles in it."""
    boxes = summarise_quantiles(figure, material)
    controls = summarise_control_means(figure, material)
    save_numbers(pd.concat([boxes, controls])[COLUMNS], stem)
    values = place_values(figure, material, boxes)
    with theme():
        save(_draw(figure, material.names, boxes, controls, values), stem)


def _draw(
    figure: Distribution,
    names: AxisLabels,
    boxes: pd.DataFrame,
    controls: pd.DataFrame,
    values: Values,
) -> Figure:
    facets = list(dict.fromkeys(boxes["facet"]))
    labels = categories(figure, names, boxes)
    slots = Slots({x: float(i) for i, x in enumerate(labels)}, hues(boxes), BOX)
    ticks = wrap(labels.values())
    size = (slots.inches(ticks), PANEL[1])
    canvas, panels = new_panels(1, len(facets), size, sharex=True, sharey=True)
    for axes, facet in zip(panels.flat, facets, strict=True):
        draw_controls(axes, controls[controls["facet"] == facet])
        for box in records(boxes[boxes["facet"] == facet]):
            _draw_box(axes, slots, box, values)
        axes.set(title=facet, xlabel=label_axis(figure.x, names), xlim=(-0.5, len(ticks) - 0.5))
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_ylabel(label_metric(names, figure.y, "all"))
        axes.label_outer()
    add_legend(canvas, figure, names, _handles(slots), controls)
    return canvas


def _draw_box(axes: Axes, slots: Slots, box: Row, values: Values) -> None:
    """One box and its values at its right; a dash where there are none."""
    key, colour = (box["x"], box["hue"]), slots.colours[box["hue"]]
    if not box["count"]:
        return mark_missing(axes, slots.bar(*key), colour, box["reason"])
    found = values[tuple(str(box[column]) for column in PLACE)]
    axes.bxp(
        [{name: box[column] for name, column in STATISTICS.items()}],
        positions=[slots.bar(*key)],
        widths=slots.width * 0.8,
        patch_artist=True,
        showfliers=False,
        manage_ticks=False,
        boxprops={"facecolor": (*colour, 0.3), "edgecolor": colour, "linewidth": 0.9},
        whiskerprops={"color": colour, "linewidth": 0.9},
        capprops={"color": colour, "linewidth": 0.9},
        medianprops={"color": "0.15", "linewidth": 1.4},
    )
    offsets = spread(len(found)) * slots.rest * FILLED
    opacity = float(np.clip(8 / np.sqrt(len(found)), FAINTEST, FAINT))
    axes.scatter(slots.marker(*key) + offsets, found, color=colour, alpha=opacity, **DOTS)


def spread(count: int) -> np.ndarray:
    """Places in [-0.5, 0.5] that fill it evenly, few or many, the same each time; Shape (count)."""
    return (np.arange(count) + 0.5) * GOLDEN % 1 - 0.5


def _handles(slots: Slots) -> list[Artist]:
    boxes: list[Artist] = [
        Patch(color=colour, label=hue) for hue, colour in slots.colours.items() if hue
    ]
    return [*boxes, Patch(facecolor="0.85", edgecolor=NEUTRAL, label=KEY)]
