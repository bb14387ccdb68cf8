"""Trade-offs between the utility of models and privacy under an attack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from typing_extensions import override

from gleak.core.errors import SpecError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.experiments.axes import check_axis, level_of, place
from gleak.experiments.axis_labels import AxisLabels
from gleak.experiments.figure_spec import FigureData, GridFigure, Row, without_controls

ATTACK = "attack"


@register("tradeoff")
class Tradeoff(GridFigure):
    """Privacy of each attacked cell against the utility of models trained under its defence.

    The utility is that of a cell of another grid, of models, which is selected by ``joined``: with
    ``defense: training.defense`` it is the model trained under the defence of the attacked cell.
    Privacy increases to the right, utility upwards. For each colour the region dominated by its
    points is filled: the trade-offs that defences achieve against this attack.
    """

    models: str = Field(description="the grid of models whose utility is drawn")
    joined: dict[str, str] = Field(
        description="axis of the attacked cells: axis of the models that has the same value",
        min_length=1,
    )
    privacy: str = parameter("lpips", "metric of the attacked cells")
    utility: str = parameter("test_accuracy", "metric of the models")
    hue: str = parameter(ATTACK, "axis told apart by colour")
    circled: dict[str, str] = parameter({}, "level: spec, of points to look at twice")

    @property
    @override
    def grids(self) -> Sequence[str]:
        return (self.grid, self.models)

    @property
    @override
    def used_metrics(self) -> Sequence[str]:
        return [self.privacy]

    @property
    @override
    def used_axes(self) -> Sequence[str]:
        return list(dict.fromkeys([self.hue, *self.joined]))

    @override
    def check_together(self, grids: Sequence[tuple[AxisLabels, Sequence[Row]]]) -> None:
        (names, rows), (models, trained) = grids
        self.check(names, rows)
        models.check_metric(self.utility)
        for axis in self.joined.values():
            check_axis(axis, models)
        names.select(self.circled)
        for row in self.chosen(names, rows):
            self.model_of(row, trained)

    @override
    def chosen(self, names: AxisLabels, rows: Sequence[Row]) -> list[Row]:
        if ATTACK not in names.values:
            return list(rows)
        return without_controls(super().chosen(names, rows))

    def model_of(self, row: Row, trained: Sequence[Row]) -> Row:
        """Return the model that an attacked cell is joined with.

        Raises:
            SpecError: if there is none, or more than one.
        """
        wanted = [place(axis, row[level_of(axis)]) for axis in self.joined]
        found = [
            model
            for model in trained
            if [place(axis, model[level_of(axis)]) for axis in self.joined.values()] == wanted
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
