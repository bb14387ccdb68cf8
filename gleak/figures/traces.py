"""Traces: how far searches had come at each of their iterations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from typing_extensions import override

from gleak.core.errors import SpecError
from gleak.core.registry import parse, register
from gleak.core.spec import parameter
from gleak.experiments.figure_spec import FigureData, GridFigure, Row, without_controls
from gleak.experiments.labels import AxisLabels


@register("traces")
class Traces(GridFigure):
    """The objective of attacks that iterate, along their iterations: its mean over victims.

    The band goes from the best victim to the worst. A search that begins afresh goes up again; one
    that has ended stays where it is.
    """

    needs: ClassVar[Literal["scores", "reconstructions"]] = "reconstructions"

    hue: str = parameter("attack", "axis told apart by colour")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")

    @property
    def used_metrics(self) -> Sequence[str]:
        """What is traced."""
        return ["objective"]

    @property
    def used_axes(self) -> Sequence[str]:
        """Those of colours and panels."""
        return [axis for axis in (self.hue, self.facets) if axis is not None]

    def check(self, names: AxisLabels, rows: Sequence[Row]) -> None:
        """Refuse attacks that do not iterate, too; see `GridFigure.check`."""
        super().check(names, rows)
        for attack in {row["attack"]: None for row in self.chosen(names, rows)}:
            if not parse("attack", attack).evaluations:
                raise SpecError(
                    f"attack {attack!r} has no iterations to trace; leave it out under where, or "
                    "choose another kind of figure"
                )

    def chosen(self, names: AxisLabels, rows: Sequence[Row]) -> list[Row]:
        """As in `GridFigure.chosen`, without the controls: they do not search."""
        return without_controls(super().chosen(names, rows))

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.traces_drawing import draw_traces

        draw_traces(self, material, stem)
