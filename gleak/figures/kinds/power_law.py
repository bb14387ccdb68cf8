"""Mean of a metric along an axis of numbers, beside a power law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from gleak.core.errors import SpecError
from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.numbers import format_number
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter
from gleak.figures.canvas.panels import Colour, add_legend, facet_panels, hues, label_metric
from gleak.figures.canvas.style import NEUTRAL, PANEL, save, theme
from gleak.figures.kinds.plots import MeanPlot, save_points
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData, Over

LAW: dict[str, Any] = {"lw": 1, "ls": ":"}


@register("power_law")
class PowerLaw(MeanPlot):
    """Mean of a metric along numbers above 0, on logarithmic axes, with lines of a power law.

    The law of each colour goes through its first point.
    """

    y: str = Field(description="metric")
    power: float = Field(description="exponent of x in the law")
    x_missing: float = parameter(1.0, "place on x of specs that lack its field", gt=0)

    @property
    def measured(self) -> Mapping[str, Over]:
        return {self.y: "all"}

    @property
    def reading(self) -> str:
        law = f"x to the power of {format_number(self.power)}"
        return f"{super().reading} Dotted: {law} through the first point."

    def along(self, names: AxisLabels, spec: Spec) -> float | str:
        place = self.x_axis.place(spec, self.x_missing)
        if isinstance(place, float) and place > 0:
            return place
        raise SpecError(
            f"x: {self.x} of {spec} is no number above 0, on which a power law is drawn; choose a "
            "field of such numbers, or where to leave the spec out"
        )

    def check(self, names: AxisLabels, cells: Sequence[Cell]) -> None:
        super().check(names, cells)
        for cell in self.chosen(names, cells):
            self.along(names, self.x_axis.spec(cell))

    def draw(self, material: FigureData, stem: Path) -> None:
        points, _ = save_points(self, material, stem)
        with theme():
            save(_draw(self, material.names, points), stem, material.conditions)


def _draw(figure: PowerLaw, names: AxisLabels, points: pd.DataFrame) -> mpl.figure.Figure:
    facets = list(dict.fromkeys(points["facet"]))
    canvas, panels = facet_panels(len(facets), PANEL, sharex=True, sharey=True)
    points, colours = points.astype({"x": float}), hues(points)
    for axes, facet in zip(panels, facets, strict=True):
        axes.set(title=facet, xscale="log", yscale="log", xlabel=figure.x_axis.title(names))
        axes.set_ylabel(label_metric(names, figure.y, "all"))
        for hue, colour in colours.items():
            here = (points["facet"] == facet) & (points["hue"] == hue)
            _draw_curve(axes, points[here], figure.power, colour)
        places = sorted(set(points["x"]))
        axes.set_xticks(places, [format_number(x) for x in places])
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        axes.label_outer()
    handles = [
        *(
            mpl.lines.Line2D([], [], color=colour, marker="o", markersize=4, label=hue)
            for hue, colour in colours.items()
        ),
        mpl.lines.Line2D([], [], color=NEUTRAL, label="law", **LAW),
    ]
    nothing = pd.DataFrame({"attack": [], "ours": []})
    add_legend(canvas, figure.hue_axis, names, handles, nothing)
    return canvas


def _draw_curve(axes: mpl.axes.Axes, line: pd.DataFrame, power: float, colour: Colour) -> None:
    known = line.dropna(subset="ours")
    axes.fill_between(line["x"], line["low"], line["high"], color=colour, alpha=0.12, lw=0)
    axes.plot(line["x"], line["ours"], color=colour, marker="o", markersize=4)
    if not known.empty:
        first = known.iloc[0]
        axes.plot(line["x"], first["ours"] * (line["x"] / first["x"]) ** power, color=colour, **LAW)
