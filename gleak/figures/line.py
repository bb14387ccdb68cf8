"""Lines: a metric against an axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from gleak.figures.base import FigureSpec, Material, Over
from gleak.registry import register
from gleak.spec import knob


@register("line")
class Line(FigureSpec):
    """Mean of a metric along an axis, with a band, the paper's values and the controls.

    If hue is of the same level as x (``x: defense.std``, ``hue: defense.name``), a cell whose
    spec lacks the field of x (``none``) is the start of every line.
    """

    x: str = Field(description="axis: a level, or a field of its specs such as defense.std")
    y: str = Field(description="metric")
    hue: str | None = knob(None, "axis told apart by colour")
    facets: str | None = knob(None, "axis told apart by panels, side by side")
    x_missing: float = knob(0.0, "place on x of specs that lack its field")
    x_scale: Literal["linear", "log", "symlog"] = knob("linear", "symlog is log with room for 0")
    error: Literal["ci", "sd"] = knob(
        "ci", "band: 95% bootstrapped confidence interval of the mean, or one standard deviation"
    )
    over: Over = knob("all", "all, or only successful reconstructions")

    @property
    def used_metrics(self) -> Sequence[str]:
        """The one on y."""
        return [self.y]

    @property
    def used_axes(self) -> Sequence[str]:
        """Those of x, colours and panels."""
        return [axis for axis in (self.x, self.hue, self.facets) if axis is not None]

    def draw(self, material: Material, stem: Path) -> None:
        """See `FigureSpec.draw`."""
        from gleak.figures.line_drawing import draw_line

        draw_line(self, material, stem)
