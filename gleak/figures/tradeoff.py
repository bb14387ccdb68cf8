"""Trade-offs: what a defence costs in accuracy, and what it keeps from an attack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from typing_extensions import override

from gleak.core.errors import SpecError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.experiments.axes import check_axis, level_of, place
from gleak.experiments.figure_spec import FigureData, GridFigure, Row, without_controls
from gleak.experiments.labels import AxisLabels

ATTACK = "attack"


@register("tradeoff")
class Tradeoff(GridFigure):
    """One point for each attacked cell: how well it hid, and how good models get that hide so.

    The second number is that of a cell of another grid, of models, which is found by ``joined``:
    with ``defense: training.defense`` it is the one trained under the defence of the first. To the
    right more is hidden, above models are better. For each colour the region below and to the left
    of the points is filled: what its attack lets defences achieve.
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
        """The attacked cells come first."""
        return (self.grid, self.models)

    @property
    def used_metrics(self) -> Sequence[str]:
        """Those of the attacked cells."""
        return [self.privacy]

    @property
    def used_axes(self) -> Sequence[str]:
        """What tells points apart: their colour, and by what they are joined."""
        return list(dict.fromkeys([self.hue, *self.joined]))

    def check_together(self, grids: Sequence[tuple[AxisLabels, Sequence[Row]]]) -> None:
        """Refuse points of which no model, or more than one, has the utility.

        Raises:
            SpecError: see `FigureSpec.check`; or names a cell that finds no model of its own.
        """
        (names, rows), (models, trained) = grids
        self.check(names, rows)
        models.check_metric(self.utility)
        for axis in self.joined.values():
            check_axis(axis, models)
        names.select(self.circled)
        for row in self.chosen(names, rows):
            self.model_of(row, trained)

    def chosen(self, names: AxisLabels, rows: Sequence[Row]) -> list[Row]:
        """As in `GridFigure.chosen`, without the controls; of the models all of them."""
        if ATTACK not in names.values:
            return list(rows)
        return without_controls(super().chosen(names, rows))

    def model_of(self, row: Row, trained: Sequence[Row]) -> Row:
        """The model that an attacked cell is joined with.

        Raises:
            SpecError: there is none, or more than one.
        """
        wanted = [place(axis, row[level_of(axis)]) for axis in self.joined]
        found = [
            model
            for model in trained
            if [place(axis, model[level_of(axis)]) for axis in self.joined.values()] == wanted
        ]
        if len(found) != 1:
            told = ", ".join(
                f"{axis} {value}" for axis, value in zip(self.joined, wanted, strict=True)
            )
            raise SpecError(
                f"{len(found)} models of grid {self.models!r} are joined with cells of {told}, and "
                "it must be one; add what is missing, or name more axes under joined"
            )
        return found[0]

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.tradeoff_drawing import draw_tradeoff

        draw_tradeoff(self, material, stem)
