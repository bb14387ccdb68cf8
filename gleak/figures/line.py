"""Lines: a metric against an axis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from gleak.figures.axes import label_place, level_of, place
from gleak.figures.base import Material, Over, Row
from gleak.figures.names import Names
from gleak.figures.plot import MeanPlot
from gleak.registry import register
from gleak.spec import knob


@register("line")
class Line(MeanPlot):
    """Mean of a metric along an axis, with a band, the paper's values and the controls.

    Colours as in `gleak.figures.plot.Plot`: a cell without the field of x is the start of every
    line of its level.
    """

    y: str = Field(description="metric")
    x_missing: float = knob(0.0, "place on x of specs that lack its field")
    x_scale: Literal["linear", "log", "symlog"] = knob("linear", "symlog is log with room for 0")
    over: Over = knob("all", "which reconstructions count; the last: all where none succeeded")

    @property
    def measured(self) -> Mapping[str, Over]:
        """See `Plot.measured`."""
        return {self.y: self.over}

    def along(self, names: Names, row: Row) -> float | str:
        """See `Plot.along`."""
        found = place(self.x, row[level_of(self.x)], self.x_missing)
        return label_place(self.x, names, row) if isinstance(found, str) else found

    def draw(self, material: Material, stem: Path) -> None:
        """See `FigureSpec.draw`."""
        from gleak.figures.line_drawing import draw_line

        draw_line(self, material, stem)
