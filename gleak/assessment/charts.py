"""Pictures of a report, as data URIs, so that the page needs no other file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from gleak.artifacts.pictures import enlarged, picture
from gleak.assessment.findings import Curves, Mean, Variation, Varied
from gleak.assessment.wording import readable
from gleak.figures.canvas.style import NEUTRAL, VOLATILE, new_figure, theme

WIDTH, HEIGHT = 3.6, 2.4  # inches
LINE, BETWEEN, AROUND = 0.16, 0.12, 0.7  # inches: a line of text, between two names, all else
THRESHOLD: dict[str, Any] = {"color": "#d55e00", "linestyle": ":", "label": "threshold"}
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


class Charts(NamedTuple):
    """Pictures, as data URIs: the share of clients above the threshold, and a metric's mean."""

    share: str
    mean: str


class Series(NamedTuple):
    """A quantity at each value of what varies."""

    label: str
    means: Sequence[Mean]
    look: Mapping[str, Any]


def data_uri(kind: str, content: bytes) -> str:
    """Return the address of a file that is part of the page."""
    return f"data:{kind};base64,{b64encode(content).decode()}"


def sample_uri(sample: np.ndarray) -> str:
    """Return an image of Shape (C, H, W), enlarged, as a PNG."""
    buffer = BytesIO()
    enlarged(picture(sample)).save(buffer, format="PNG")
    return data_uri("image/png", buffer.getvalue())


def charts_of(variation: Variation) -> dict[str, Charts]:
    """Return the pictures of the leakage along what varies, by metric."""
    with theme():
        return {metric: _charts(variation, curves) for metric, curves in variation.curves.items()}


def _charts(variation: Variation, curves: Curves) -> Charts:
    shares, means = [], []
    for look, (attack, rows) in zip(cycle(ATTACKS), curves.attacks.items(), strict=False):
        shares.append(
            Series(readable(attack), [row.share if row else UNKNOWN for row in rows], look)
        )
        means.append(
            Series(readable(attack), [row.attacked if row else UNKNOWN for row in rows], look)
        )
    blind = [row.blind for row in curves.guesses]
    means.append(Series("guess without the update", blind, GUESS))
    first = curves.guesses[0]
    given = variation.field, curves.points, variation.numeric
    share = draw_series(*given, shares, f"clients at {first.limit}", is_share=True)
    mean = draw_series(*given, means, f"mean {first.metric}", threshold=first.threshold)
    return Charts(figure_uri(share), figure_uri(mean))


def figure_uri(figure: Figure) -> str:
    """Return a figure as an SVG, equal for equal figures."""
    buffer = BytesIO()
    figure.savefig(buffer, format="svg", metadata=VOLATILE["svg"])
    return data_uri("image/svg+xml", buffer.getvalue())


def draw_series(
    field: str,
    points: Sequence[Varied],
    numeric: bool,
    series: Sequence[Series],
    quantity: str,
    is_share: bool = False,
    threshold: float | None = None,
) -> Figure:
    """Draw a quantity against what varies: lines along numbers, points beside names.

    Args:
        field: what varies.
        points: its values.
        numeric: True if all of its values are numbers.
        series: the quantity of each attack, with its intervals.
        quantity: label of its axis.
        is_share: its axis is from 0 to 100%.
        threshold: value at which a line is drawn.
    """
    separator = "\n" if numeric else " "
    ticks = [f"{p.value}{separator}(deployed)" if p.deployed else p.value for p in points]
    if numeric:
        places = np.array([float(point.number or 0) for point in points])
        height = HEIGHT
    else:
        places, ticks = np.arange(len(points)), [tick.replace("+", "\n+") for tick in ticks]
        height = AROUND + BETWEEN * len(ticks) + LINE * sum(1 + t.count("\n") for t in ticks)
    handles = len(series) + (threshold is not None)
    figure: Figure = new_figure(WIDTH, height + LINE * handles)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    across, along = (axes.xaxis, axes.yaxis) if numeric else (axes.yaxis, axes.xaxis)
    drawn: list[Any] = []
    for number, one in enumerate(series):
        middle = np.array([mean.value for mean in one.means], dtype=float)
        ends = np.array([[mean.low, mean.high] for mean in one.means], dtype=float).T
        look, error = {"capsize": 3, **one.look, "label": one.label}, np.abs(ends - middle)
        if numeric:
            drawn.append(axes.errorbar(places, middle, error, **look))
        else:
            rows, look["linestyle"] = places + SHIFT * number, "none"
            drawn.append(axes.errorbar(middle, rows, xerr=error, **look))
    if is_share:
        (axes.set_ylim if numeric else axes.set_xlim)(-0.04, 1.04)  # room for points at the ends
        along.set_major_formatter(PercentFormatter(1))
    if threshold is not None:
        drawn.append((axes.axhline if numeric else axes.axvline)(threshold, **THRESHOLD))
    positive = places[places > 0]
    if not numeric:
        axes.set_ylim(len(points) - 0.5, -0.5)
    elif len(positive) and positive.max() > WIDE * positive.min():
        axes.set_xscale("symlog", linthresh=positive.min())  # linear from 0 to the least
        axes.xaxis.set_minor_locator(NullLocator())
    across.set_ticks(places, ticks)
    across.set_label_text(field)
    along.set_label_text(quantity)
    figure.legend(handles=drawn, frameon=False, loc="outside upper left")
    return figure
