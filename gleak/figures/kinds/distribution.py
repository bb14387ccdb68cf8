"""Distributions of a metric along an axis, and their quantiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.registry import register
from gleak.core.spec import Spec
from gleak.figures.canvas.panels import (
    Slots,
    add_legend,
    draw_controls,
    hues,
    label_metric,
    mark_missing,
    new_panels,
    wrap,
)
from gleak.figures.canvas.style import NEUTRAL, PANEL, save, save_numbers, theme
from gleak.figures.kinds.plots import Plot, categories, place_rows, summarise_controls
from gleak.figures.statistics import CELL, Row, chosen_cells, counted, records, summarise
from gleak.studies.axis_labels import AxisLabels, read_metric
from gleak.studies.figure_spec import FigureData, Over


@register("distribution")
class Distribution(Plot):
    """All values of a metric as points beside a box of their quantiles, with the controls' means.

    Boxes show the median and the quartiles, whiskers reach from the 0.05 to the 0.95 quantile.
    Colours as in `gleak.figures.kinds.plots.Plot`; values of x are in the order of the study. The
    paper's values, which are single numbers, are not shown.
    """

    source = "CPA Figure 7"

    y: str = Field(description="metric; one value per sample, or per victim of those that are so")

    @property
    def reading(self) -> str:
        return (
            "Points are single values; boxes show their median and quartiles, whiskers the 5% and "
            "95% quantiles. Grey lines: means of the controls (blind uses no update)."
        )

    @property
    def measured(self) -> Mapping[str, Over]:
        return {self.y: "all"}

    def along(self, names: AxisLabels, spec: Spec) -> float | str:
        return self.x_axis.label_category(names, spec)

    def draw(self, material: FigureData, stem: Path) -> None:
        boxes = summarise_quantiles(self, material)
        controls = summarise_control_means(self, material)
        save_numbers(pd.concat([boxes, controls])[COLUMNS], stem)
        values = place_values(self, material, boxes)
        with theme():
            save(_draw(self, material.names, boxes, controls, values), stem, material.conditions)


BOX = 0.5  # width of a box relative to its slot; the rest is for its values
FILLED = 0.8  # share of the rest that the values spread over
GOLDEN = 0.618034
KEY = "quartiles,\n5% to 95%"
STATISTICS = {"whislo": "q0.05", "q1": "q0.25", "med": "q0.5", "q3": "q0.75", "whishi": "q0.95"}
FAINTEST, FAINT = 0.2, 0.5  # opacity of a point among thousands and among few
DOTS: dict[str, Any] = {"s": 3, "linewidths": 0, "rasterized": True}
QUANTILES = {"q0.05": 0.05, "q0.25": 0.25, "q0.5": 0.5, "q0.75": 0.75, "q0.95": 0.95}
PLACE = ["x", "hue", "facet"]
COLUMNS = [*CELL, "metric", *PLACE, *QUANTILES, "mean", "count", "rows", "reason"]


def _draw(
    figure: Distribution,
    names: AxisLabels,
    boxes: pd.DataFrame,
    controls: pd.DataFrame,
    values: dict[tuple[str, ...], pd.Series],
) -> mpl.figure.Figure:
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
        axes.set(title=facet, xlabel=figure.x_axis.title(names), xlim=(-0.5, len(ticks) - 0.5))
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_ylabel(label_metric(names, figure.y, "all"))
        axes.label_outer()
    key = mpl.patches.Patch(facecolor="0.85", edgecolor=NEUTRAL, label=KEY)
    add_legend(canvas, figure.hue_axis, names, [*slots.handles, key], controls)
    return canvas


def _draw_box(
    axes: mpl.axes.Axes, slots: Slots, box: Row, values: dict[tuple[str, ...], pd.Series]
) -> None:
    """Draw a box with its values at its right; a dash if there are none."""
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
    """Return a deterministic low-discrepancy sequence in [-0.5, 0.5]; Shape (count)."""
    return (np.arange(count) + 0.5) * GOLDEN % 1 - 0.5


def summarise_quantiles(figure: Distribution, material: FigureData) -> pd.DataFrame:
    """Compute one row per box, in the order of the study; columns `COLUMNS`, and ``shown``.

    Quantiles are over all values of a cell, with linear interpolation; count is the number of
    values, rows the number of samples or victims that are scored.
    """
    scores, metric = material.scores, read_metric(figure.y)
    means = summarise(scores, metric).rename(columns={"ours": "mean"}).assign(shown=figure.y)
    values = counted(scores, str(metric), "all").groupby(CELL)["value"]
    quantiles = pd.DataFrame({name: values.quantile(share) for name, share in QUANTILES.items()})
    boxes = chosen_cells(figure, material).merge(means)
    boxes = boxes.merge(quantiles.reset_index(), on=CELL, how="left")
    return place_rows(figure, material.names, boxes)


def summarise_control_means(figure: Distribution, material: FigureData) -> pd.DataFrame:
    """Compute the controls' means in each panel; columns as of the boxes, without quantiles."""
    controls = summarise_controls(figure, material).assign(mean=lambda table: table["ours"])
    return controls.reindex(columns=[*COLUMNS, "ours"])


def place_values(
    figure: Distribution, material: FigureData, boxes: pd.DataFrame
) -> dict[tuple[str, ...], pd.Series]:
    """Return the values of each box, by x, hue and facet, in the order of victims and samples."""
    values = counted(material.scores, str(read_metric(figure.y)), "all")[[*CELL, "value"]]
    placed = boxes[[*CELL, *PLACE]].merge(values, on=CELL)
    return {tuple(map(str, key)): rows["value"] for key, rows in placed.groupby(PLACE)}
