"""Trade-offs between the utility of models and privacy under an attack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from typing_extensions import override

from gleak.core.errors import SpecError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.studies.axes import Axis, check_axis
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData, GridFigure, without_controls

ATTACK = "attack"


@register("tradeoff")
class Tradeoff(GridFigure):
    """Privacy of each attacked cell against the utility of models trained under its defence.

    The utility is that of a cell of another grid, of models, which is selected by ``joined``: with
    ``defense: training.defense`` it is the model trained under the defence of the attacked cell.
    Privacy increases to the right, utility upwards. For each colour the region dominated by its
    points is filled: the trade-offs that defences achieve against this attack. Bars are 95%
    confidence intervals over victims and over networks. A dotted line is the mean of the blind
    control, if the grid has it.
    """

    models: str = Field(description="the grid of models whose utility is drawn")
    joined: dict[str, str] = Field(
        description="axis of the attacked cells: axis of the models that has the same value",
        min_length=1,
    )
    privacy: str = parameter("lpips", "metric of the attacked cells")
    utility: str = parameter("test_accuracy", "metric of the models")
    hue: str = parameter(ATTACK, "axis told apart by colour")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")
    area: str | None = parameter(
        None, "metric of the attacked cells that the area of a point shows, such as sent_kilobytes"
    )
    circled: dict[str, str] = parameter({}, "level: spec, of points to look at twice")

    @property
    @override
    def reading(self) -> str:
        return (
            "Points are means. Privacy increases to the right, utility upwards; the filled region "
            "is what the defences achieve against an attack, and its edge their Pareto front. Bars "
            "are 95% confidence intervals, absent for fewer than three victims or networks."
        )

    @property
    @override
    def grids(self) -> Sequence[str]:
        return (self.grid, self.models)

    @property
    @override
    def used_metrics(self) -> Sequence[str]:
        return [self.privacy, *([self.area] if self.area else [])]

    @property
    @override
    def used_axes(self) -> Sequence[str]:
        panels = [self.facets] if self.facets else []
        return list(dict.fromkeys([self.hue, *self.joined, *panels]))

    @override
    def check_together(self, grids: Sequence[tuple[AxisLabels, Sequence[Cell]]]) -> None:
        (names, cells), (models, trained) = grids
        self.check(names, cells)
        models.check_metric(self.utility)
        for axis in self.joined.values():
            check_axis(axis, models)
        names.select(self.circled)
        for cell in self.chosen(names, cells):
            self.model_of(cell, trained)

    @override
    def chosen(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        if ATTACK not in names.values:
            return list(cells)
        return without_controls(super().chosen(names, cells))

    def model_of(self, cell: Cell, trained: Sequence[Cell]) -> Cell:
        """Return the model that an attacked cell is joined with.

        Raises:
            SpecError: if there is none, or more than one.
        """
        wanted = [axis.place(axis.spec(cell)) for axis in map(Axis.read, self.joined)]
        axes = [Axis.read(text) for text in self.joined.values()]
        found = [
            model for model in trained if [axis.place(axis.spec(model)) for axis in axes] == wanted
        ]
        if len(found) != 1:
            values = ", ".join(
                f"{axis} {value}" for axis, value in zip(self.joined, wanted, strict=True)
            )
            raise SpecError(
                f"{len(found)} models of grid {self.models!r} are joined with cells of {values}; "
                "it must be one: add the missing model, or more axes under joined"
            )
        return found[0]

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.kinds.tradeoff_drawing import draw_tradeoff

        draw_tradeoff(self, material, stem)
