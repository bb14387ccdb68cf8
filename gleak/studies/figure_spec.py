"""Base classes of figure specs, and the data that figures are drawn from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from pydantic import Field

from gleak.core.errors import SpecError
from gleak.core.spec import Spec, build_spec, parameter
from gleak.knowledge.base import Pretraining
from gleak.studies.axis_labels import Axis, AxisLabels, check_axis, is_control, read_metric
from gleak.studies.cell import Cell
from gleak.studies.gates import Gates

if TYPE_CHECKING:
    import pandas as pd

Statistic = Literal["mean", "median", "min", "max", "var", "std", "best"]
Over = Literal["all", "successful", "successful_else_all"]
Instead = Mapping[str, str]
"""Metric as a study writes it -> the one that is measured in its place at a scale."""
TABLE_SUFFIXES = (".html", ".csv", ".tex")


def as_list(value: object) -> object:
    """Return a list of one item for a single text."""
    return [value] if isinstance(value, str) else value


@dataclass(frozen=True)
class Shown:
    """A cell whose reconstructions are shown; if it was refused, a reason instead of its files."""

    cell: Cell
    reconstruction: Path
    private: Path
    reason: str = ""


@dataclass(frozen=True)
class FigureData:
    """Data that a figure is drawn from.

    Args:
        scores: table in the form of `gleak.metrics.score_table`, of all of its grids, with the
            `Cell` of each row in the column ``cell``; no rows if it has no grid.
        published: the paper's values for this figure (`gleak.figures.published`).
        names: values of the axes of its first grid and their labels; empty if it has no grid.
        shown: cells whose reconstructions the figure shows.
        trained: files of the knowledge whose training the figure shows, in its order.
        conditions: of its cells, printed below the figure: heading -> text.
        gates: of its first grid.
    """

    scores: pd.DataFrame
    published: pd.DataFrame
    names: AxisLabels
    shown: Sequence[Shown] = ()
    trained: Sequence[Path] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    gates: Gates | None = None


def _replaced(value: Any, names: Instead) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_replaced(item, names) for item in value]
    if isinstance(value, dict):
        return {names.get(key, key): _replaced(item, names) for key, item in value.items()}
    return value


class FigureSpec(Spec):
    """Base class of figures, drawn from scores, from registered specs, or from knowledge.

    A study file contains it as a mapping; ``kind: table`` is its registered name.
    """

    kind: ClassVar[str] = "figure"
    needs: ClassVar[Literal["scores", "reconstructions"]] = "scores"
    suffixes: ClassVar[tuple[str, ...]] = (".svg", ".png", ".csv")

    title: str = parameter("", "what it shows in a few words, for lists of figures")
    caption: str = parameter("", "what the figure shows; in the report, with the conditions added")
    reproduces: str = parameter("", "figure or table of the paper, and its place there")

    @property
    def reading(self) -> str:
        """Explanation of how its numbers are computed and drawn; part of the caption."""
        return ""

    @property
    def grids(self) -> Sequence[str]:
        """Names of the grids whose scores it is drawn from, mostly one or none."""
        return ()

    def measuring(self, instead: Instead) -> Self:
        """Return the figure that shows other metrics in place of some."""
        names = {text: other for text, other in instead.items() if text not in self.grids}
        fields = {key: _replaced(value, names) for key, value in self} if names else {}
        changed = {key for key, value in self if fields.get(key, value) != value}
        written = {key: fields[key] for key in fields if key in changed | self.model_fields_set}
        return cast(Self, build_spec(type(self), written)) if changed else self

    def trainings(self, scale: str) -> Sequence[Pretraining]:
        """Return the trainings of knowledge that it shows at a scale; none for most kinds."""
        return ()

    def check_together(self, grids: Sequence[tuple[AxisLabels, Sequence[Cell]]]) -> None:
        """Check that its grids have what it needs at a scale; arguments of each as in `check`."""
        for names, cells in grids:
            self.check(names, cells)

    def check_gates(self, gates: Gates | None) -> None:
        """Check that the gates of its first grid have what it needs; None if there are none."""

    def check(self, names: AxisLabels, cells: Sequence[Cell]) -> None:
        """Check that a grid has what the figure needs.

        Args:
            names: labels of the grid.
            cells: everything in the grid that has scores, with its controls.

        Raises:
            SpecError: unknown metric, axis or value, or cells that would share one place.
        """

    def chosen(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells of the grid that the figure shows; arguments as in `check`.

        Raises:
            SpecError: ``where`` names a value that the grid does not have.
        """
        return list(cells)

    @abstractmethod
    def draw(self, material: FigureData, stem: Path) -> None:
        """Write the figure and its numbers: ``stem`` plus each of `suffixes`."""


class GridFigure(FigureSpec):
    """Base class of figures that are drawn from the scores of a grid."""

    shows_controls: ClassVar[bool] = True

    grid: str = Field(description="the grid of the study that is drawn")
    where: dict[str, str] = parameter({}, "level: spec, to draw only part of the grid")

    @property
    def grids(self) -> Sequence[str]:
        return (self.grid,)

    @property
    @abstractmethod
    def used_metrics(self) -> Sequence[str]:
        """Metrics that it shows or refers to."""

    @property
    @abstractmethod
    def used_axes(self) -> Sequence[str]:
        """Axes that distinguish its cells."""

    @property
    def modules(self) -> frozenset[str]:
        metrics = map(read_metric, self.used_metrics)
        return super().modules.union(*(metric.modules for metric in metrics))

    def check(self, names: AxisLabels, cells: Sequence[Cell]) -> None:
        for metric in self.used_metrics:
            names.check_metric(metric)
        for axis in self.used_axes:
            check_axis(axis, names)
        self._check_places(self.chosen(names, cells))

    def chosen(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        wanted = names.select(self.where)
        kept = [c for c in cells if all(c.specs[level] == wanted[level] for level in wanted)]
        levels = {*(axis.level for axis in self.axes), *wanted}
        if "attack" not in levels or not self.shows_controls:
            return without_controls(kept)
        return kept if "crafting" in levels else merge_controls(kept)  # once for all craftings

    @property
    def axes(self) -> list[Axis]:
        """Axes that distinguish its cells."""
        return [Axis.read(text) for text in self.used_axes]

    def _check_places(self, cells: Sequence[Cell]) -> None:
        if not cells:
            raise SpecError(f"no cell of grid {self.grid!r} matches where {self.where}")
        places = {tuple(axis.place(axis.spec(cell)) for axis in self.axes) for cell in cells}
        if len(places) == len(cells):
            return
        levels = {axis.level for axis in self.axes}
        varying = [lv for lv in cells[0].specs if len({cell.specs[lv] for cell in cells}) > 1]
        mixed = [level for level in varying if level not in levels]
        raise SpecError(
            f"several cells share a place: {', '.join(mixed) or 'a level'} varies and is no axis "
            f"of the figure ({', '.join(self.used_axes) or 'none'}); add it or fix it under where"
        )


def without_controls(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if not is_control(cell)]


def merge_controls(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with only the first of controls that differ in the crafting alone.

    The broadcast parameters affect neither the truth nor the blind control.
    """

    def uncrafted(cell: Cell) -> tuple[Spec, ...]:
        return tuple(spec for level, spec in cell.specs.items() if level != "crafting")

    first = {uncrafted(cell): cell for cell in reversed(cells)}
    return [cell for cell in cells if not is_control(cell) or first[uncrafted(cell)] is cell]
