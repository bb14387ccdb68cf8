"""Expectations: relations that the paper claims, and their verdicts on our scores."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from gleak.core.errors import SpecError
from gleak.core.spec import Spec
from gleak.experiments.axis_labels import AxisLabels, is_control
from gleak.experiments.cell import LEVELS, Cell
from gleak.experiments.figure_spec import Over, Statistic, merge_controls

Verdict = Literal["holds", "fails", "no data"]


class Expectation(BaseModel):
    """Base class of the expectations of a study file.

    Args:
        id: its name in the report.
        grid: the grid whose scores are judged.
        metric: of its cells; statistic and over: aggregation within each cell.
        where: level: spec, to judge only part of the grid.
        level: a failed gate stops the run after everything is written.
        claim: the paper's claim, in one line.
        source: of the claim in the paper.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    grid: str
    metric: str
    statistic: Statistic = "mean"
    over: Over = "all"
    where: dict[str, str] = {}
    level: Literal["informational", "gate"] = "informational"
    claim: str
    source: str

    @property
    def compared(self) -> tuple[str, list[str]]:
        """Level along which values are compared, and these values in order; none for a bound."""
        return "", []

    @abstractmethod
    def holds(self, values: Sequence[float]) -> bool:
        """Return True if the values of one group are as claimed."""

    def judge(self, values: Sequence[float]) -> Verdict:
        """Return the verdict on one group; "no data" if a value is missing."""
        if any(map(math.isnan, values)):
            return "no data"
        return "holds" if self.holds(values) else "fails"

    def check(self, names: Sequence[AxisLabels]) -> None:
        """Check that the metric fits and that each value exists at some scale.

        Args:
            names: labels of the grid, at every scale.

        Raises:
            SpecError: unknown metric or level, or a value that the grid never has.
        """
        for scale in names:
            scale.check_metric(self.metric)
        along, order = self.compared
        for level, wanted in [*self.where.items(), *((along, value) for value in order)]:
            if all(scale.resolve(level, wanted) is None for scale in names):
                raise SpecError(f"the grid has no {level} {wanted!r} at any scale")

    def groups(self, names: AxisLabels, cells: Sequence[Cell]) -> list[list[Cell]]:
        """Group the judged cells; those of a group are compared with each other.

        They differ only in the level along which they are compared and in those that advance with
        it. Controls are included only if attacks are named.

        Args:
            names: labels of the grid.
            cells: everything in it that has scores.

        Raises:
            SpecError: cells of one group that have the same value along the level.
        """
        along, _ = self.compared
        fixed = [level for level in LEVELS if level not in names.together(along)]
        by_setting: dict[tuple[Spec | None, ...], list[Cell]] = {}
        for cell in self._concerned(names, cells):
            key = tuple(cell.specs.get(level) for level in fixed)
            by_setting.setdefault(key, []).append(cell)
        groups = [merge_controls(group) for group in by_setting.values()]
        for group in groups:
            self._check_group(names, group)
        return groups

    def _concerned(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        where = {level: names.resolve(level, text) for level, text in self.where.items()}
        along, order = self.compared
        wanted = {names.resolve(along, text) for text in order}
        hide_controls = "attack" not in (*where, along)
        return [
            cell
            for cell in cells
            if all(cell.specs[level] == value for level, value in where.items())
            and (not along or cell.specs[along] in wanted)
            and not (hide_controls and is_control(cell))
        ]

    def _check_group(self, names: AxisLabels, group: Sequence[Cell]) -> None:
        along, _ = self.compared
        others = sorted(names.together(along) - {along})
        for value, times in Counter(cell.specs[along] for cell in group if along).items():
            if times > 1:
                raise SpecError(
                    f"{along} {str(value)!r} is in {times} cells that differ in levels that "
                    f"advance with it ({', '.join(others)}); give each a grid of its own"
                )


class Order(Expectation):
    """Values along a level increase from first to last, strictly unless the relation is <=."""

    along: str
    order: list[str] = Field(min_length=2)
    relation: Literal["<", "<="] = "<"

    @property
    @override
    def compared(self) -> tuple[str, list[str]]:
        return self.along, self.order

    @override
    def holds(self, values: Sequence[float]) -> bool:
        return all(a < b or (self.relation == "<=" and a == b) for a, b in pairwise(values))


class Trend(Expectation):
    """Values fall or rise along a level; no step may go back by more than slack."""

    along: str
    trend: Literal["falls", "rises"]
    order: list[str] = Field(min_length=2)
    slack: float = Field(0.0, ge=0)

    @property
    @override
    def compared(self) -> tuple[str, list[str]]:
        return self.along, self.order

    @override
    def holds(self, values: Sequence[float]) -> bool:
        sign = -1 if self.trend == "falls" else 1
        steps = [sign * (b - a) for a, b in pairwise(values)]
        return sign * (values[-1] - values[0]) > 0 and min(steps) >= -self.slack


class Closeness(Expectation):
    """All values differ from the first by at most a tolerance."""

    along: str
    within: float = Field(ge=0)
    order: list[str] = Field(min_length=2)

    @property
    @override
    def compared(self) -> tuple[str, list[str]]:
        return self.along, self.order

    @override
    def holds(self, values: Sequence[float]) -> bool:
        first, *others = values
        return all(abs(other - first) <= self.within for other in others)


class Bound(Expectation):
    """The value of each cell is at least or at most a number."""

    at_least: float = -math.inf
    at_most: float = math.inf

    @override
    def holds(self, values: Sequence[float]) -> bool:
        return all(self.at_least <= value <= self.at_most for value in values)


SORTS: Mapping[str, type[Expectation]] = MappingProxyType(
    {"trend": Trend, "within": Closeness, "order": Order, "at_least": Bound, "at_most": Bound}
)
"""Keys of the kinds of expectations; the first that is present decides."""


def sort_of(written: Mapping[str, Any]) -> type[Expectation]:
    """Return the kind of an expectation by its keys.

    Raises:
        SpecError: if it has none of them.
    """
    for key, cls in SORTS.items():
        if key in written:
            return cls
    raise SpecError(
        "claims nothing: give along and order, or also trend or within, or at_least or at_most"
    )
