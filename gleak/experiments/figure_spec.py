"""What every figure spec provides, and what it is drawn from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic import Field
from typing_extensions import override

from gleak.core.errors import SpecError
from gleak.core.spec import Spec, parameter
from gleak.experiments.axes import check_axis, level_of, place
from gleak.experiments.axis_labels import BLIND, TRUTH, AxisLabels
from gleak.metrics.score_table import LEVEL_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

    from gleak.knowledge.base import Pretraining

Statistic = Literal["mean", "median", "min", "max", "var", "std", "best"]
Over = Literal["all", "successful", "successful_else_all"]
Row = Mapping[str, str]
R = TypeVar("R", bound=Mapping[str, Any])
TABLE_SUFFIXES = (".svg", ".png", ".csv", ".md", ".tex")


def as_list(value: object) -> object:
    """A list of one where a study gives one thing in place of a list."""
    return [value] if isinstance(value, str) else value


@dataclass(frozen=True)
class Shown:
    """One cell of which more is shown than its scores.

    Args:
        row: canonical spec of each level.
        reconstruction, private: its files; of a cell that was refused these hold nothing.
        reason: why it was refused; empty for others.
    """

    row: Row
    reconstruction: Path
    private: Path
    reason: str = ""


@dataclass(frozen=True)
class FigureData:
    """What a figure is drawn from.

    Args:
        scores: table in the form of `gleak.metrics.score_table`, of all of its grids; no rows where
            there is none.
        published: the paper's values for this figure (`gleak.figures.published`).
        names: values of the grid's axes and their labels, of the first where there are several;
            none where there is no grid.
        shown: cells whose reconstructions the figure asked for.
        trained: files of the knowledge whose training the figure shows, in its order.
    """

    scores: pd.DataFrame
    published: pd.DataFrame
    names: AxisLabels
    shown: Sequence[Shown] = ()
    trained: Sequence[Path] = ()


class FigureSpec(Spec):
    """A figure of a study, drawn from scores, from what is registered, or from knowledge.

    Stands in a study file as a mapping; ``kind: table`` there is the name it is registered under.
    """

    kind: ClassVar[str] = "figure"
    needs: ClassVar[Literal["scores", "reconstructions"]] = "scores"
    suffixes: ClassVar[tuple[str, ...]] = (".svg", ".png", ".csv")

    caption: str = parameter("", "what the figure shows; in the report, with the conditions added")
    reproduces: str = parameter("", "figure or table of the paper, and its place there")

    @property
    def grids(self) -> Sequence[str]:
        """Names of the grids whose scores it is drawn from: one for most kinds, or none."""
        return ()

    def trainings(self, scale: str) -> Sequence[Pretraining]:
        """Trainings of knowledge that it is drawn from at a scale; none for most kinds."""
        return ()

    def check_together(self, grids: Sequence[tuple[AxisLabels, Sequence[Row]]]) -> None:
        """Refuse what its grids cannot serve at a scale; names and rows of each as in `check`.

        Raises:
            SpecError: see `check`.
        """
        for names, rows in grids:
            self.check(names, rows)

    def check(self, names: AxisLabels, rows: Sequence[Row]) -> None:
        """Refuse what the grid cannot serve.

        Args:
            names: of the grid.
            rows: the specs of everything in the grid that has scores, see `Grid`.

        Raises:
            SpecError: says what does not fit.
        """

    def chosen(self, names: AxisLabels, rows: Sequence[Row]) -> list[Row]:
        """The rows of the grid that the figure is about; arguments as in `check`."""
        return list(rows)

    @abstractmethod
    def draw(self, material: FigureData, stem: Path) -> None:
        """Write the figure and its numbers: ``stem`` plus each of `suffixes`."""


class GridFigure(FigureSpec):
    """A figure that is drawn from the scores of a grid."""

    grid: str = Field(description="the grid of the study that is drawn")
    where: dict[str, str] = parameter({}, "level: spec, to draw only part of the grid")

    @property
    @override
    def grids(self) -> Sequence[str]:
        return (self.grid,)

    @property
    @abstractmethod
    def used_metrics(self) -> Sequence[str]:
        """Metrics it reads."""

    @property
    @abstractmethod
    def used_axes(self) -> Sequence[str]:
        """Axes along which cells are told apart."""

    def check(self, names: AxisLabels, rows: Sequence[Row]) -> None:
        """Refuse what the grid or the metrics cannot serve; see `FigureSpec.check`.

        Raises:
            SpecError: unknown metric, axis or value, or cells that would share one place.
        """
        for metric in self.used_metrics:
            names.check_metric(metric)
        for axis in self.used_axes:
            check_axis(axis, names)
        self._check_places(self.chosen(names, rows))

    def chosen(self, names: AxisLabels, rows: Sequence[Row]) -> list[Row]:
        """The rows the figure is about; controls only if attacks are told apart.

        Where the crafting is not told apart, a control is there once for all of them.

        Raises:
            SpecError: ``where`` names what the grid does not have.
        """
        wanted = names.select(self.where)
        kept = [row for row in rows if all(row[level] == wanted[level] for level in wanted)]
        told_apart = {*map(level_of, self.used_axes), *wanted}
        if "attack" not in told_apart:
            return without_controls(kept)
        return kept if "crafting" in told_apart else merge_controls(kept)

    def _check_places(self, rows: Sequence[Row]) -> None:
        if not rows:
            raise SpecError(f"no cell of grid {self.grid!r} matches where {self.where}")
        places = [
            tuple(place(axis, row[level_of(axis)]) for axis in self.used_axes) for row in rows
        ]
        if len(set(places)) == len(places):
            return
        told_apart = set(map(level_of, self.used_axes))
        varying = [level for level in rows[0] if len({row[level] for row in rows}) > 1]
        mixed = [level for level in varying if level not in told_apart]
        raise SpecError(
            f"several cells share a place: {', '.join(mixed) or 'a level'} varies and is no axis "
            f"of the figure ({', '.join(self.used_axes) or 'none'}); add it or fix it under where"
        )


def without_controls(rows: Sequence[Row]) -> list[Row]:
    """The rows of attacks alone, neither blind nor the truth."""
    return [row for row in rows if row["attack"] not in (BLIND, TRUTH)]


def merge_controls(rows: Sequence[R]) -> list[R]:
    """The rows, of controls that differ in the crafting alone only the first.

    What is broadcast changes neither the truth nor what is guessed without an update.
    """
    others = [level for level in LEVEL_COLUMNS if level != "crafting"]
    first = {tuple(row[level] for level in others): row for row in reversed(rows)}
    return [
        row
        for row in rows
        if row["attack"] not in (BLIND, TRUTH) or first[tuple(row[lv] for lv in others)] is row
    ]
