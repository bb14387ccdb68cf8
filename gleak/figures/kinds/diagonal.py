"""One metric of each cell against another, with the line on which both are equal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.figures.canvas.panels import add_legend, facet_panels, hues, panel_of
from gleak.figures.canvas.style import NEUTRAL, PANEL, save, save_numbers, theme
from gleak.figures.statistics import CELL, chosen_cells, summarise
from gleak.studies.axis_labels import Axis, AxisLabels, read_metric
from gleak.studies.figure_spec import FigureData, GridFigure

COLUMNS = [*CELL, "x", "y", "hue", "facet", "count", "reason"]


@register("diagonal")
class Diagonal(GridFigure):
    """Means of one metric of each cell against those of another in the same unit.

    On the dotted line both are equal: what was measured against what was predicted or proven. A
    cell without either has no point.
    """

    source = "ours"
    shows_controls: ClassVar[bool] = False

    x: str = Field(description="metric along the horizontal axis")
    y: str = Field(description="metric along the vertical axis, in the unit of x")
    points: str = Field(description="axis whose values are the points of a colour")
    hue: str = Field(description="axis told apart by colour")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")

    @property
    def reading(self) -> str:
        return "A point is a cell; on the dotted line both numbers are equal."

    @property
    def used_metrics(self) -> Sequence[str]:
        return [self.x, self.y]

    @property
    def used_axes(self) -> Sequence[str]:
        return [axis for axis in (self.points, self.hue, self.facets) if axis is not None]

    def draw(self, material: FigureData, stem: Path) -> None:
        points = pair_metrics(self, material)
        save_numbers(points[COLUMNS], stem)
        with theme():
            save(_draw(self, material.names, points), stem, material.conditions)


def pair_metrics(figure: Diagonal, material: FigureData) -> pd.DataFrame:
    """Compute one row for each cell, in the order of the study; columns `COLUMNS`."""
    axis, names = Axis.read(figure.hue), material.names
    cells = chosen_cells(figure, material)
    cells["hue"] = [axis.label(names, axis.spec(cell)) for cell in cells["cell"]]
    cells["facet"] = [panel_of(figure.facets, names, cell) for cell in cells["cell"]]
    along, above = (
        summarise(material.scores, read_metric(metric)).rename(columns={"ours": name})
        for name, metric in (("x", figure.x), ("y", figure.y))
    )
    points = cells.merge(above, on=CELL, how="left")
    return points.merge(along[[*CELL, "x"]], on=CELL, how="left")


def _draw(figure: Diagonal, names: AxisLabels, points: pd.DataFrame) -> mpl.figure.Figure:
    facets = list(dict.fromkeys(points["facet"]))
    canvas, panels = facet_panels(len(facets), PANEL, sharex=True, sharey=True)
    colours, known = hues(points), points[["x", "y"]].dropna()
    end = 1.05 * float(known.to_numpy().max(initial=0)) or 1.0
    for axes, facet in zip(panels, facets, strict=True):
        axes.plot([0, end], [0, end], color=NEUTRAL, lw=1, ls=":")
        for hue, colour in colours.items():
            chosen = points[(points["facet"] == facet) & (points["hue"] == hue)]
            axes.plot(chosen["x"], chosen["y"], color=colour, ls="", marker="o", markersize=4)
        axes.set(title=facet, xlim=(0, end), ylim=(0, end))
        axes.set(xlabel=names.metric(figure.x), ylabel=names.metric(figure.y))
        axes.label_outer()
    look: dict[str, Any] = {"color": NEUTRAL, "lw": 1, "ls": ":"}
    handles = [
        *(
            mpl.lines.Line2D([], [], color=shade, label=hue, ls="", marker="o")
            for hue, shade in colours.items()
        ),
        mpl.lines.Line2D([], [], label="equal", **look),
    ]
    nothing = pd.DataFrame({"attack": [], "ours": []})
    add_legend(canvas, Axis.read(figure.hue), names, handles, nothing)
    return canvas
