"""Pictures of the leakage along what varies: a line along numbers, points beside names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from operator import attrgetter
from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter
from typing_extensions import override

from gleak.assessment.drawing import figure_uri
from gleak.assessment.findings import Curves, Exposure, Mean, Variation, Varied
from gleak.figures.canvas.style import NEUTRAL, new_figure, theme

WIDTH, HEIGHT = 3.6, 2.4  # inches
LINE, BETWEEN, AROUND = 0.16, 0.12, 0.7  # inches: a line of text, between two names, all else
THRESHOLD: dict[str, Any] = {"color": "#d55e00", "linestyle": ":", "label": "threshold"}
INTERVAL = {"capsize": 3}
ATTACKS = [
    {"color": "#0173b2", "marker": "o"},
    {"color": "#029e73", "marker": "^"},
    {"color": "#cc78bc", "marker": "D"},
    {"color": "#ca9161", "marker": "v"},
]
UNKNOWN = Mean(value=None, low=None, high=None)
GUESS = {"color": NEUTRAL, "marker": "s", "linestyle": "--"}
SHIFT = 0.15
"""Distance between the points of two series beside one name, in distances between names."""
WIDE = 10
"""Ratio of the largest to the least number above which their axis is logarithmic."""
WHOLE = (-0.04, 1.04)
"""Limits of an axis of shares, with room for the points at its ends."""


@dataclass(frozen=True)
class Charts:
    """Two pictures of the leakage in one metric, as data URIs.

    Args:
        share: of clients above the threshold.
        mean: of the metric, of the attack and of the guess without the update.
    """

    share: str
    mean: str


@dataclass(frozen=True)
class Series:
    """A quantity at each value of what varies."""

    label: str
    means: Sequence[Mean]
    look: Mapping[str, Any]

    @property
    def middle(self) -> np.ndarray:
        """The values, Shape (N); not a number where there is none."""
        return np.array([each.value for each in self.means], dtype=float)

    @property
    def spread(self) -> np.ndarray:
        """Distances of the ends of the intervals from the values, Shape (2, N)."""
        ends = np.array([[each.low, each.high] for each in self.means], dtype=float).T
        spread: np.ndarray = np.abs(ends - self.middle)
        return spread


def charts_of(variation: Variation) -> dict[str, Charts]:
    """Return the pictures of the leakage along what varies, by metric."""
    kind = NumberChart if variation.numeric else NameChart
    with theme():
        return {
            metric: Charts(
                _share(kind(variation.field, curves.points), curves),
                _mean(kind(variation.field, curves.points), curves),
            )
            for metric, curves in variation.curves.items()
        }


def _share(chart: Chart, curves: Curves) -> str:
    _add_attacks(chart, curves, attrgetter("share"))
    chart.limit(*WHOLE)
    chart.quantity.set_major_formatter(PercentFormatter(1))
    return chart.finished(f"clients at {curves.guesses[0].limit}")


def _mean(chart: Chart, curves: Curves) -> str:
    first, *_ = curves.guesses
    _add_attacks(chart, curves, attrgetter("attacked"))
    chart.add(Series("guess without the update", [row.blind for row in curves.guesses], GUESS))
    chart.mark(first.threshold)
    return chart.finished(f"mean {first.metric}")


def _add_attacks(chart: Chart, curves: Curves, quantity: Callable[[Exposure], Mean]) -> None:
    """Draw a quantity of every attack."""
    for look, (attack, rows) in zip(cycle(ATTACKS), curves.attacks.items(), strict=False):
        means = [quantity(row) if row else UNKNOWN for row in rows]
        chart.add(Series(attack, means, look))


class Chart(ABC):
    """Axes of one quantity against what varies.

    Args:
        height: in inches.
    """

    quantity: Axis
    """Axis of the quantity."""

    def __init__(self, height: float) -> None:
        self.figure: Figure = new_figure(WIDTH, height)
        self.figure.set_layout_engine("constrained")
        self.axes = self.figure.subplots()
        self.drawn: list[Any] = []

    @abstractmethod
    def add(self, series: Series) -> None:
        """Draw a quantity with its intervals."""

    @abstractmethod
    def limit(self, low: float, high: float) -> None:
        """Set the ends of the axis of the quantity."""

    @abstractmethod
    def mark(self, threshold: float) -> None:
        """Draw a line at a value of the quantity."""

    def finished(self, quantity: str) -> str:
        """Return the picture, with the name of the quantity and a legend above its axes."""
        self.quantity.set_label_text(quantity)
        self.figure.set_figheight(self.figure.get_figheight() + LINE * len(self.drawn))
        self.figure.legend(handles=self.drawn, frameon=False, loc="outside upper left")
        return figure_uri(self.figure)


class NumberChart(Chart):
    """Lines along numbers.

    Args:
        field: what varies.
        points: its values, which are numbers.
    """

    def __init__(self, field: str, points: Sequence[Varied]) -> None:
        super().__init__(HEIGHT)
        self.quantity = self.axes.yaxis
        self.numbers = [float(point.number or 0) for point in points]
        self._scale()
        self.axes.set_xticks(self.numbers, [_tick(point, "\n") for point in points])
        self.axes.set_xlabel(field)

    def _scale(self) -> None:
        """Make the axis logarithmic if its numbers are; from 0 to the least it is linear."""
        positive = [number for number in self.numbers if number > 0]
        if positive and max(positive) > WIDE * min(positive):
            self.axes.set_xscale("symlog", linthresh=min(positive))
            self.axes.xaxis.set_minor_locator(NullLocator())

    @override
    def add(self, series: Series) -> None:
        look = {**INTERVAL, **series.look, "label": series.label}
        self.drawn.append(self.axes.errorbar(self.numbers, series.middle, series.spread, **look))

    @override
    def limit(self, low: float, high: float) -> None:
        self.axes.set_ylim(low, high)

    @override
    def mark(self, threshold: float) -> None:
        self.drawn.append(self.axes.axhline(threshold, **THRESHOLD))


class NameChart(Chart):
    """Points beside names.

    Args:
        field: what varies.
        points: its values.
    """

    def __init__(self, field: str, points: Sequence[Varied]) -> None:
        names = [_tick(point, " ").replace("+", "\n+") for point in points]
        lines = sum(1 + name.count("\n") for name in names)
        super().__init__(AROUND + LINE * lines + BETWEEN * len(names))
        self.quantity = self.axes.xaxis
        self.rows = np.arange(len(names))
        self.axes.set_yticks(self.rows, names)
        self.axes.set_ylim(len(names) - 0.5, -0.5)
        self.axes.set_ylabel(field)

    @override
    def add(self, series: Series) -> None:
        look = {**INTERVAL, **series.look, "label": series.label, "linestyle": "none"}
        rows = self.rows + SHIFT * len(self.drawn)
        self.drawn.append(self.axes.errorbar(series.middle, rows, xerr=series.spread, **look))

    @override
    def limit(self, low: float, high: float) -> None:
        self.axes.set_xlim(low, high)

    @override
    def mark(self, threshold: float) -> None:
        self.drawn.append(self.axes.axvline(threshold, **THRESHOLD))


def _tick(point: Varied, separator: str) -> str:
    return f"{point.value}{separator}(deployed)" if point.deployed else point.value
