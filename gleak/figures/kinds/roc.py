"""ROC curves of membership inference, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.registry import register
from gleak.core.spec import format_value, parameter
from gleak.figures.canvas.panels import add_legend, facet_panels, hues, panel_of
from gleak.figures.canvas.style import NEUTRAL, PANEL, save, save_numbers, theme
from gleak.figures.statistics import (
    CELL,
    band_over_victims,
    chosen_cells,
    summarise,
)
from gleak.studies.axis_labels import Axis, AxisLabels, read_metric
from gleak.studies.figure_spec import FigureData, GridFigure

RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
WITH_INTERVAL = (0.001, 0.01, 0.1)
"""Rates at which intervals are drawn: at all of them those of several colours hide each other."""
APART = 1.09
"""Ratio of the places of two intervals at a rate."""
ENDS = ("low", "ours", "high")
COLUMNS = [*CELL, "metric", "fpr", "hue", "facet", *ENDS, "count", "reason"]


@register("roc")
class ROC(GridFigure):
    """True positive rate against false positive rate, with its interval, on logarithmic axes.

    Each rate is the mean of the metric `tpr` with that ``fpr``. The grey line is that of guesses.
    """

    source = "Carlini et al. 2022, Figure 1"
    shows_controls: ClassVar[bool] = False

    hue: str = Field(description="axis told apart by colour")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")
    rates: tuple[float, ...] = parameter(RATES, "false positive rates, each above 0 and below 1")
    bottom: float = parameter(1e-3, "least true positive rate that is drawn", gt=0, lt=1)

    @property
    def reading(self) -> str:
        return (
            "Shares of members found, against the share of other candidates taken for members; "
            "bars: 95% confidence intervals over victims, side by side. What is below the lower "
            "edge is drawn on it. Grey line: guesses."
        )

    @property
    def used_metrics(self) -> Sequence[str]:
        return [str(read_metric(f"tpr+fpr={format_value(rate)}")) for rate in self.rates]

    @property
    def used_axes(self) -> Sequence[str]:
        return [axis for axis in (self.hue, self.facets) if axis is not None]

    def draw(self, material: FigureData, stem: Path) -> None:
        points = summarise_curves(self, material)
        save_numbers(points[COLUMNS], stem)
        with theme():
            save(_draw(self, material.names, points), stem, material.conditions)


def summarise_curves(figure: ROC, material: FigureData) -> pd.DataFrame:
    """Compute one row for each rate of each cell, in the order of the study; columns `COLUMNS`."""
    axis, names, parts = Axis.read(figure.hue), material.names, []
    cells = chosen_cells(figure, material)
    cells["hue"] = [axis.label(names, axis.spec(cell)) for cell in cells["cell"]]
    cells["facet"] = [panel_of(figure.facets, names, cell) for cell in cells["cell"]]
    for rate, text in zip(figure.rates, figure.used_metrics, strict=True):
        metric = read_metric(text)
        bands = band_over_victims(material.scores, metric)
        summary = summarise(material.scores, metric).assign(fpr=rate)
        parts.append(cells.merge(summary.merge(bands, on=CELL, how="left"), on=CELL))
    points = pd.concat(parts, ignore_index=True)
    order = {key: place for place, key in enumerate(cells[CELL].agg("/".join, axis=1))}
    places = points[CELL].agg("/".join, axis=1).map(order)
    return points.assign(place=places).sort_values(["place", "fpr"], ignore_index=True)


def _draw(figure: ROC, names: AxisLabels, points: pd.DataFrame) -> mpl.figure.Figure:
    facets = list(dict.fromkeys(points["facet"]))
    canvas, panels = facet_panels(len(facets), PANEL, sharex=True, sharey=True)
    colours, least = hues(points), figure.bottom
    ends = [min(figure.rates), max(figure.rates)]
    for axes, facet in zip(panels, facets, strict=True):
        axes.plot(ends, ends, color=NEUTRAL, lw=1, ls=":")
        for place, (hue, colour) in enumerate(colours.items()):
            line = points[(points["facet"] == facet) & (points["hue"] == hue)]
            line = line.assign(**{key: line[key].clip(lower=least) for key in ENDS})
            axes.plot(line["fpr"], line["ours"], color=colour, marker="o", markersize=2.5)
            bars = line[line["fpr"].isin(WITH_INTERVAL)]
            beside = bars["fpr"] * APART ** (place - (len(colours) - 1) / 2)
            axes.vlines(beside, bars["low"], bars["high"], color=colour, lw=1, alpha=0.5)
        axes.set(title=facet, xscale="log", yscale="log", ylim=(least, 1.1))
        axes.set(xlabel="false positive rate", ylabel="true positive rate")
        axes.label_outer()
    look: dict[str, Any] = {"color": NEUTRAL, "lw": 1, "ls": ":"}
    handles = [
        *(mpl.lines.Line2D([], [], color=shade, label=hue) for hue, shade in colours.items()),
        mpl.lines.Line2D([], [], label="guesses", **look),
    ]
    nothing = pd.DataFrame({"attack": [], "ours": []})
    add_legend(canvas, Axis.read(figure.hue), names, handles, nothing)
    return canvas
