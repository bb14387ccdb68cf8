"""Expectations: relations the paper claims, and whether our scores bear them out."""

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
from gleak.experiments.axis_labels import BLIND, TRUTH, AxisLabels
from gleak.experiments.figure_spec import Over, R, Statistic, merge_controls
from gleak.metrics.score_table import LEVEL_COLUMNS

Verdict = Literal["holds", "fails", "no data"]


class Expectation(BaseModel):
    """What all expectations of a study file have.

    Args:
        id: its name in the report.
        grid: the grid whose scores are judged.
        metric: which number; statistic and over: how it is summed up for each cell.
        where: level: spec, to judge only part of the grid.
        level: a failed gate stops the run after everything is written.
        claim: in the paper's sense, in one line.
        source: where the paper says so.
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
        """The level along which values are compared, and which, in order; none for a bound."""
        return "", []

    @abstractmethod
    def holds(self, values: Sequence[float]) -> bool:
        """Whether the values of one group are as claimed."""

    def judge(self, values: Sequence[float]) -> Verdict:
        """The verdict on one group; no verdict where a value is missing."""
        if any(map(math.isnan, values)):
            return "no data"
        return "holds" if self.holds(values) else "fails"

    def check(self, names: Sequence[AxisLabels]) -> None:
        """Refuse what no scale has.

        Args:
            names: of the grid, at every scale.

        Raises:
            SpecError: unknown metric or level, or a value that the grid never has.
        """
        for scale in names:
            scale.check_metric(self.metric)
        along, order = self.compared
        for level, wanted in [*self.where.items(), *((along, value) for value in order)]:
            if all(scale.resolve(level, wanted) is None for scale in names):
                raise SpecError(f"the grid has no {level} {wanted!r} at any scale")

    def groups(self, names: AxisLabels, rows: Sequence[R]) -> list[list[R]]:
        """The cells that are judged; in a group are those that are compared with each other.

        They differ in the level along which they are compared, and in those that advance with it,
        alone. Controls are there only where attacks are named.

        Args:
            names: of the grid.
            rows: the specs of everything in it that has scores, whatever else is said of them.

        Raises:
            SpecError: cells of one group that have the same value along the level.
        """
        along, _ = self.compared
        fixed = [level for level in LEVEL_COLUMNS if level not in names.together(along)]
        found: dict[tuple[str, ...], list[R]] = {}
        for row in self._concerned(names, rows):
            found.setdefault(tuple(row[level] for level in fixed), []).append(row)
        groups = [merge_controls(group) for group in found.values()]
        for group in groups:
            self._check_group(names, group)
        return groups

    def _concerned(self, names: AxisLabels, rows: Sequence[R]) -> list[R]:
        where = {level: names.resolve(level, text) for level, text in self.where.items()}
        along, order = self.compared
        wanted = {names.resolve(along, text) for text in order}
        hidden = () if "attack" in (*where, along) else (BLIND, TRUTH)
        return [
            row
            for row in rows
            if all(row[level] == value for level, value in where.items())
            and (not along or row[along] in wanted)
            and row["attack"] not in hidden
        ]

    def _check_group(self, names: AxisLabels, group: Sequence[Mapping[str, Any]]) -> None:
        along, _ = self.compared
        others = sorted(names.together(along) - {along})
        for value, times in Counter(row[along] for row in group if along).items():
            if times > 1:
                raise SpecError(
                    f"{along} {value!r} stands in {times} cells that differ in what advances with "
                    f"it ({', '.join(others)}); give each a grid of its own"
                )


class Order(Expectation):
    """From lowest to highest along a level: each value below the next (or equal, with <=)."""

    along: str
    order: list[str] = Field(min_length=2)
    relation: Literal["<", "<="] = "<"

    @property
    @override
    def compared(self) -> tuple[str, list[str]]:
        return self.along, self.order

    def holds(self, values: Sequence[float]) -> bool:
        """Every pair of neighbours is in this relation."""
        return all(a < b or (self.relation == "<=" and a == b) for a, b in pairwise(values))


class Trend(Expectation):
    """Falls or rises along a level, from first to last; no step may go back by more than slack."""

    along: str
    trend: Literal["falls", "rises"]
    order: list[str] = Field(min_length=2)
    slack: float = Field(0.0, ge=0)

    @property
    @override
    def compared(self) -> tuple[str, list[str]]:
        return self.along, self.order

    def holds(self, values: Sequence[float]) -> bool:
        """The last value is beyond the first, and each step goes that way up to the slack."""
        sign = -1 if self.trend == "falls" else 1
        steps = [sign * (b - a) for a, b in pairwise(values)]
        return sign * (values[-1] - values[0]) > 0 and min(steps) >= -self.slack


class Closeness(Expectation):
    """The values after the first lie within so much of it, above or below."""

    along: str
    within: float = Field(ge=0)
    order: list[str] = Field(min_length=2)

    @property
    @override
    def compared(self) -> tuple[str, list[str]]:
        return self.along, self.order

    def holds(self, values: Sequence[float]) -> bool:
        """No value is further from the first."""
        first, *others = values
        return all(abs(other - first) <= self.within for other in others)


class Bound(Expectation):
    """Each cell's value is at least or at most a number."""

    at_least: float = -math.inf
    at_most: float = math.inf

    def holds(self, values: Sequence[float]) -> bool:
        """The value lies within the bounds."""
        return all(self.at_least <= value <= self.at_most for value in values)


SORTS: Mapping[str, type[Expectation]] = MappingProxyType(
    {"trend": Trend, "within": Closeness, "order": Order, "at_least": Bound, "at_most": Bound}
)
"""A key that tells an expectation from those after it."""


def sort_of(written: Mapping[str, Any]) -> type[Expectation]:
    """Which expectation is meant, told by the keys it has.

    Raises:
        SpecError: by none.
    """
    for key, cls in SORTS.items():
        if key in written:
            return cls
    raise SpecError(
        "says nothing: give along and order, or also trend or within, or at_least or at_most"
    )
