"""Trade-offs: what a defence costs in accuracy, and what it keeps from an attack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from gleak.errors import SpecError
from gleak.figures.axes import check_axis, level_of, place
from gleak.figures.base import GridFigure, Material, Row, without_controls
from gleak.figures.names import Names
from gleak.registry import register
from gleak.spec import knob

ATTACK = "attack"


@register("tradeoff")
class Tradeoff(GridFigure):
    """One point for each attacked cell: how well it hid, and how good models get that hide so.

    The second number is that of a cell of another grid, of models, which is found by ``joined``:
    with ``defense: training.defense`` it is the one trained under the defence of the first. To the
    right is more privacy, above more utility. For each colour the region below and to the left of
    the points is filled: what its attack lets defences achieve.
    """

    models: str = Field(description="the grid of models whose utility is drawn")
    joined: dict[str, str] = Field(
        description="axis of the attacked cells: axis of the models that has the same value",
        min_length=1,
    )
    privacy: str = knob("lpips", "metric of the attacked cells")
    utility: str = knob("test_accuracy", "metric of the models")
    hue: str = knob(ATTACK, "axis told apart by colour")
    circled: dict[str, str] = knob({}, "level: spec, of points to look at twice")

    @property
    def grids(self) -> Sequence[str]:
        """See `FigureSpec.grids`; the attacked cells come first."""
        return (self.grid, self.models)

    @property
    def used_metrics(self) -> Sequence[str]:
        """Those of the attacked cells."""
        return [self.privacy]

    @property
    def used_axes(self) -> Sequence[str]:
        """What tells points apart: their colour, and by what they are joined."""
        return list(dict.fromkeys([self.hue, *self.joined]))

    def check_together(self, grids: Sequence[tuple[Names, Sequence[Row]]]) -> None:
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

    def chosen(self, names: Names, rows: Sequence[Row]) -> list[Row]:
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

    def draw(self, material: Material, stem: Path) -> None:
        """See `FigureSpec.draw`."""
        from gleak.figures.tradeoff_drawing import draw_tradeoff

        draw_tradeoff(self, material, stem)
