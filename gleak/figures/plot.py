"""What plots have in common: metrics against an axis, by colour and panel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from gleak.core.spec import parameter
from gleak.experiments.figure_spec import GridFigure, Over, Row, without_controls
from gleak.experiments.labels import AxisLabels


class Plot(GridFigure):
    """Base of the kinds that show metrics along an axis.

    If hue is of the same level as x (``x: defense.std``, ``hue: defense.name``), a cell whose
    spec lacks the field of x (``none``) stands with every colour.
    """

    x: str = Field(description="axis: a level, or a field of its specs such as defense.std")
    hue: str | None = parameter(None, "axis told apart by colour")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")

    @property
    @abstractmethod
    def measured(self) -> Mapping[str, Over]:
        """Each metric on y, and over which reconstructions it is taken."""

    @abstractmethod
    def along(self, names: AxisLabels, row: Row) -> float | str:
        """Where a cell stands on x: a number, or what is printed at its place."""

    @property
    def used_metrics(self) -> Sequence[str]:
        """Those on y."""
        return list(self.measured)

    @property
    def used_axes(self) -> Sequence[str]:
        """Those of x, colours and panels."""
        return [axis for axis in (self.x, self.hue, self.facets) if axis is not None]

    def chosen(self, names: AxisLabels, rows: Sequence[Row]) -> list[Row]:
        """As in `GridFigure.chosen`, without the controls: they are lines across the panels."""
        return without_controls(super().chosen(names, rows))


class MeanPlot(Plot):
    """Base of the kinds that show means, with their band."""

    error: Literal["ci", "sd"] = parameter(
        "ci", "95% bootstrapped confidence interval of the mean, or one standard deviation"
    )
