"""Expectations: relations that the paper claims, stated as ranges of means and differences.

`gleak.figures.evidence` estimates these from scores and judges; a study is read without it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gleak.core.errors import SpecError
from gleak.core.settings import Scale
from gleak.core.spec import Spec
from gleak.studies.axis_labels import BLIND, AxisLabels, is_control, read_metric
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.figure_spec import Over, as_list, merge_controls
from gleak.studies.gates import DEFENSE

METRIC = "metric"
PAPERS_NUMBER = frozenset({"dataset", "model", METRIC, "incomparable"})
"""What a number of a paper is about: beside others it is no bound."""
Verdict = Literal["holds", "fails", "differs", "cannot tell", "no data"]


@dataclass(frozen=True)
class ClaimedRange:
    """A mean, or the difference of two, and the range in which it lies by the claim.

    Args:
        cell: position of its mean among the compared values.
        minus: position of the mean that is subtracted; None: the mean itself.
        times: what the mean that is subtracted is multiplied by.
        low, high: ends of the range, in the unit of the metric.
        strict: the ends do not belong to the range.
    """

    cell: int
    minus: int | None = None
    times: float = 1.0
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False

    def contains(self, low: float, high: float) -> bool:
        """Return True if an interval is inside the range; False for NaN."""
        if self.strict:
            return self.low < low and high < self.high
        return self.low <= low and high <= self.high

    def excludes(self, low: float, high: float) -> bool:
        """Return True if an interval has no point in the range; False for NaN."""
        if self.strict:
            return high <= self.low or low >= self.high
        return high < self.low or low > self.high


class Expectation(BaseModel):
    """Base class of the expectations of a study file.

    Args:
        id: its name in the report.
        grid: the grid whose scores are judged.
        metric: of its cells.
        statistic: value of a victim: the mean of its samples, or the best of them.
        over: the samples that count, see `gleak.figures.statistics.counted`.
        where: level: spec or several, to judge only part of the grid.
        level: a failed gate stops the run after everything is written.
        claim: the paper's claim, in one line.
        source: of the claim in the paper; begins with "ours" if it is none of the paper.
        chance: value of the metric without information, at each scale if it depends on it; what is
            within reach of it decides nothing.
        bound_to: levels, or ``metric``, at which it is about the paper's only; beside others there
            is no verdict.
        headline: it is one of the claims on which the abstract of the paper stands.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    grid: str
    metric: str
    statistic: Literal["mean", "best"] = "mean"
    over: Over = "all"
    where: dict[str, Annotated[list[str], BeforeValidator(as_list)]] = {}
    level: Literal["informational", "gate"] = "informational"
    claim: str
    source: str
    chance: float | dict[Scale, float] | None = None
    bound_to: list[str] = []
    headline: bool = False

    def at(self, scale: str, instead: Mapping[str, str]) -> Self:
        """Return the claim at a scale, on the metric that is measured there."""
        chance = self.chance
        if isinstance(chance, dict):
            chance = next((level for known, level in chance.items() if known == scale), None)
        metric = instead.get(self.metric, self.metric)
        return self.model_copy(update={"metric": metric, "chance": chance})

    @property
    def of_paper(self) -> bool:
        """True if the paper claims it."""
        return not self.source.lower().startswith("ours")

    @property
    def papers_only(self) -> frozenset[str]:
        """Levels, or ``metric``, at which it is about those of the paper only."""
        return frozenset(self.bound_to if self.of_paper else ())

    @property
    def compared(self) -> tuple[str, list[str]]:
        """Level along which values are compared, and these values in order; none for a bound."""
        return "", []

    @property
    @abstractmethod
    def comparisons(self) -> Sequence[ClaimedRange]:
        """Ranges of the means of one group and of their differences; the claim is all of them."""

    def check(self, names: Iterable[AxisLabels]) -> None:
        """Check that the metric fits and that each value exists at some scale.

        Args:
            names: labels of the grid, at every scale; read until all values are known.
        """
        along, order = self.compared
        unknown = [(level, text) for level, texts in self.where.items() for text in texts]
        unknown += [(along, value) for value in order]
        scales = iter(names)
        first = next(scales)
        first.check_metric(self.metric)
        for scale in chain([first], scales):
            unknown = [pair for pair in unknown if scale.resolve(*pair) is None]
            if not unknown:
                return
        level, wanted = unknown[0]
        raise SpecError(f"the grid has no {level} {wanted!r} at any scale")

    def groups(self, names: AxisLabels, cells: Sequence[Cell]) -> list[list[Cell]]:
        """Group the judged cells; those of a group are compared with each other.

        They differ only in the level along which they are compared and in those that advance with
        it. Controls are included only if attacks are named.

        Args:
            names: labels of the grid.
            cells: everything in it that has scores.
        """
        along, order = self.compared
        wanted = [
            (level, {names.resolve(level, text) for text in texts})
            for level, texts in [*self.where.items(), *([(along, order)] if along else [])]
        ]
        of_attacks = "attack" in (*self.where, along)
        together = names.together(along)
        fixed = [level for level in LEVELS if level not in together]
        by_setting: dict[tuple[Spec | None, ...], list[Cell]] = {}
        for cell in cells:
            judged = of_attacks or not is_control(cell)
            if judged and all(cell.specs[level] in values for level, values in wanted):
                key = tuple(cell.specs.get(level) for level in fixed)
                by_setting.setdefault(key, []).append(cell)
        groups = [merge_controls(group) for group in by_setting.values()]
        for group in groups:
            for value, times in Counter(cell.specs[along] for cell in group if along).items():
                if times > 1:
                    others = ", ".join(sorted(together - {along}))
                    raise SpecError(
                        f"{along} {str(value)!r} is in {times} cells that differ in levels that "
                        f"advance with it ({others}); give each a grid of its own"
                    )
        return groups


class OrderedExpectation(Expectation):
    """Base class of the expectations of values along a level, in their order."""

    along: str
    order: list[str] = Field(min_length=2)

    @property
    def compared(self) -> tuple[str, list[str]]:
        return self.along, self.order


class Order(OrderedExpectation):
    """Means along a level increase from first to last.

    Args:
        margin: each step is larger than this; with the relation <=, no step goes back by more.
        factor: what the smaller mean of each step is multiplied by before.
    """

    relation: Literal["<", "<="] = "<"
    margin: float = Field(0.0, ge=0)
    factor: float = Field(1.0, gt=0)

    @property
    def comparisons(self) -> Sequence[ClaimedRange]:
        strict = self.relation == "<"
        low = self.margin if strict else -self.margin
        steps = pairwise(range(len(self.order)))
        return [ClaimedRange(b, a, self.factor, low, strict=strict) for a, b in steps]


class Baseline(OrderedExpectation):
    """Each of some means along a level is above, or below, that of a baseline.

    Args:
        order: the values whose means are compared with that of the baseline.
        above, below: the baseline.
        margin: each difference is larger than this; with the relation <=, none in the other
            direction is.
    """

    order: list[str] = Field(min_length=1)
    above: str | None = None
    below: str | None = None
    relation: Literal["<", "<="] = "<"
    margin: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _check_side(self) -> Self:
        if self.above is not None and self.below is not None:
            raise ValueError("above and below exclude each other: give one baseline")
        return self

    @property
    def compared(self) -> tuple[str, list[str]]:
        return self.along, [self.above or self.below or "", *self.order]

    @property
    def comparisons(self) -> Sequence[ClaimedRange]:
        others = range(1, len(self.order) + 1)
        strict = self.relation == "<"
        end = self.margin if strict else -self.margin
        if self.below is None:
            return [ClaimedRange(i, 0, low=end, strict=strict) for i in others]
        return [ClaimedRange(i, 0, high=-end, strict=strict) for i in others]


class Trend(OrderedExpectation):
    """Means fall or rise along a level.

    Args:
        margin: the last differs from the first by more than this.
        slack: no step goes back by more than this.
    """

    trend: Literal["falls", "rises"]
    slack: float = Field(0.0, ge=0)
    margin: float = Field(0.0, ge=0)

    @property
    def comparisons(self) -> Sequence[ClaimedRange]:
        last = len(self.order) - 1
        if self.trend == "rises":
            ends = ClaimedRange(last, 0, low=self.margin, strict=True)
            steps = [ClaimedRange(i + 1, i, low=-self.slack) for i in range(last)]
        else:
            ends = ClaimedRange(last, 0, high=-self.margin, strict=True)
            steps = [ClaimedRange(i + 1, i, high=self.slack) for i in range(last)]
        return [ends, *(steps if last > 1 else [])]


class Closeness(OrderedExpectation):
    """All means differ from the first by at most a tolerance."""

    within: float = Field(ge=0)

    @property
    def comparisons(self) -> Sequence[ClaimedRange]:
        others = range(1, len(self.order))
        return [ClaimedRange(i, 0, low=-self.within, high=self.within) for i in others]


class Hides(Expectation):
    """A defence hides what an attack finds without it, by the gates of the grid.

    The attack is at most a margin above blind, and is above it at a weaker strength of the defence
    (`gleak.studies.gates`).

    Args:
        hides: the defence.
        attack: that is compared with blind.
        margin: of the metric; the study takes it from the gates.
    """

    hides: str
    attack: str
    margin: float = Field(0.0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _fix_defense(cls, written: dict[str, Any]) -> dict[str, Any]:
        where = {**written.get("where", {}), DEFENSE: written.get("hides")}
        return {**written, "where": where}

    @property
    def compared(self) -> tuple[str, list[str]]:
        return "attack", [BLIND, self.attack]

    @property
    def comparisons(self) -> Sequence[ClaimedRange]:
        if read_metric(self.metric).better == "higher":
            return [ClaimedRange(1, 0, high=self.margin)]
        return [ClaimedRange(1, 0, low=-self.margin)]


class Bound(Expectation):
    """The rate or median of each cell is at least or at most a number.

    Args:
        transfers: why a number of the paper is a bound for other data, networks or metrics, too.
            Without it there is no verdict on these.
    """

    transfers: str = ""
    at_least: float = -math.inf
    at_most: float = math.inf

    @property
    def papers_only(self) -> frozenset[str]:
        number = self.of_paper and not self.transfers
        return super().papers_only | (PAPERS_NUMBER if number else frozenset())

    @property
    def comparisons(self) -> Sequence[ClaimedRange]:
        return [ClaimedRange(0, low=self.at_least, high=self.at_most)]


SORTS: Mapping[str, type[Expectation]] = {
    "hides": Hides,
    "trend": Trend,
    "within": Closeness,
    "above": Baseline,
    "below": Baseline,
    "order": Order,
    "at_least": Bound,
    "at_most": Bound,
}
"""Keys of the kinds of expectations; the first that is present decides."""
QUALITY: Mapping[str, Mapping[str, str]] = {
    "higher": {"ranking": "order", "better_than": "above", "worse_than": "below"},
    "lower": {"ranking": "order", "better_than": "below", "worse_than": "above"},
}
"""Keys of claims on quality -> those on values, by which values of a metric are the better ones."""
WORSENS = "worsens"
"""The trend of a quality."""


def sort_of(written: Mapping[str, Any]) -> type[Expectation]:
    """Return the kind of an expectation by its keys."""
    for key, cls in SORTS.items():
        if key in written:
            return cls
    raise SpecError(
        "claims nothing: give along and order, or also trend, within, above or below, or hides, or "
        "at_least or at_most"
    )


def written_claims(expect: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Iterate over the claims of a study file, each about the values of one metric.

    A claim on several metrics, a list or a mapping to their margins, is one for each, whose id ends
    with the metric; ``headline`` may name those that are headlines. A claim on quality is restated
    in values, larger or smaller ones by the metric.
    """
    for claim in expect:
        metrics = claim.get("metric")
        if not isinstance(metrics, (list, dict)):
            yield _in_values(claim)
            continue
        margins = metrics if isinstance(metrics, dict) else {}
        for metric in metrics:
            one = {**claim, "metric": metric, "id": f"{claim.get('id')}_{metric}"}
            if not isinstance(marked := claim.get("headline", False), bool):
                one["headline"] = metric in _known_metrics(marked, metrics)
            yield _in_values(one if metric not in margins else {**one, "margin": margins[metric]})


def _known_metrics(named: Any, metrics: Iterable[str]) -> list[str]:
    """Return the metrics that a claim names as headlines, which must be among its own."""
    chosen = [named] if isinstance(named, str) else list(named)
    if unknown := [metric for metric in chosen if metric not in metrics]:
        raise SpecError(f"headline: {unknown[0]!r} is no metric of the claim: {', '.join(metrics)}")
    return chosen


def _in_values(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return a claim on values for one on quality, whose ``ranking`` is from worst to best."""
    if not (QUALITY["higher"].keys() & claim.keys() or claim.get("trend") == WORSENS):
        return dict(claim)
    better = read_metric(str(claim.get("metric"))).better
    restated = {QUALITY[better].get(key, key): value for key, value in claim.items()}
    if "ranking" in claim and better == "lower":
        restated["order"] = claim["ranking"][::-1]
    if claim.get("trend") == WORSENS:
        restated["trend"] = "falls" if better == "higher" else "rises"
    return restated
