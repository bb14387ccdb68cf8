"""Panels of plots: their grid, ticks, control lines and legends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np

from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import pandas as pd
from gleak.core.lazy import seaborn as sns
from gleak.core.numbers import format_value
from gleak.figures.canvas.style import NEUTRAL, PANEL, colours, colours_of, new_figure
from gleak.figures.statistics import records, why_missing
from gleak.studies.axis_labels import BLIND, Axis, AxisLabels, bare
from gleak.studies.cell import TRUTH, Cell
from gleak.studies.figure_spec import Over

CONTROLS = {TRUTH: (0, (6, 2)), BLIND: (0, (1, 1.5))}
PAPER, FAILED = "paper", "no successes:\nmean over failures"
OF = {"all": "", "successful": "of successes", "successful_else_all": "of successes, if any"}
ABREAST = 3  # panels
LEGEND = 1.3  # inches beside the panels
LINE = 20  # characters of a line of the legend
LONGEST_TICK = 12  # characters of a line below a tick
Colour = tuple[float, float, float]


def new_panels(
    lines: int, columns: int, size: tuple[float, float], **shared: Any
) -> tuple[mpl.figure.Figure, np.ndarray]:
    """Return a figure and its panels, Shape (lines, columns), each of a size in inches."""
    canvas = new_figure(columns * size[0] + LEGEND, lines * size[1])
    canvas.set_layout_engine("constrained")
    panels = canvas.subplots(lines, columns, squeeze=False, **shared)
    for axes in panels.flat:
        sns.despine(ax=axes)
    return canvas, panels


def facet_panels(
    count: int, size: tuple[float, float], **shared: Any
) -> tuple[mpl.figure.Figure, list[mpl.axes.Axes]]:
    """Return a figure and so many panels, at most three side by side."""
    columns = min(ABREAST, count)
    canvas, panels = new_panels(math.ceil(count / columns), columns, size, **shared)
    for axes in panels.flat[count:]:
        axes.set_axis_off()
    return canvas, list(panels.flat[:count])


def panel_of(facets: str | None, names: AxisLabels, cell: Cell) -> str:
    """Return the label of the panel of a cell, by the axis of the panels."""
    if not facets:
        return ""
    axis = Axis.read(facets)
    return with_name(facets, names, axis.label_alone(names, axis.spec(cell)))


def with_name(axis: str, names: AxisLabels, label: str) -> str:
    """Return the label of a value, after the name of its axis if it is a number."""
    is_number = label.replace("e-", "").replace(".", "").isdecimal()
    return f"{Axis.read(axis).title(names)} {label}" if is_number else label


def draw_controls(axes: mpl.axes.Axes, controls: pd.DataFrame) -> None:
    """Draw the means of the controls as lines across a panel."""
    for row in records(controls):
        axes.axhline(row["ours"], color=NEUTRAL, lw=1, ls=CONTROLS[row["attack"]], zorder=1)


def mark_missing(axes: mpl.axes.Axes, x: float, colour: Colour, reason: str) -> None:
    """Write a dash for no value, or n/a for a refused cell, at the bottom of a panel."""
    look: dict[str, Any] = {"ha": "center", "weight": "bold", "color": colour}
    axes.text(x, 0.01, format_value(math.nan, reason), transform=axes.get_xaxis_transform(), **look)


def label_metric(names: AxisLabels, metric: str, over: Over) -> str:
    """Return the label of the y axis."""
    return f"{names.metric(metric)}\n{OF[over]}".strip()


def wrap(labels: Iterable[str]) -> list[str]:
    """Break long tick labels into several lines."""
    pieces = [label.replace(" (", "\n(").splitlines() for label in labels]
    return ["\n".join(fill(p, LONGEST_TICK, break_long_words=False) for p in ps) for ps in pieces]


def hues(points: pd.DataFrame) -> dict[str, Colour]:
    """Return the colour of each hue: those of the attacks, unless one attack has several hues."""
    attack_of = points.drop_duplicates("hue").set_index("hue")["attack"].map(bare)
    several = attack_of.nunique() > 1 or len(attack_of) == 1
    looks = colours_of(list(attack_of)) if several else colours(len(attack_of))
    return dict(zip(attack_of.index, looks, strict=True))


def add_legend(
    canvas: mpl.figure.Figure,
    hue: Axis | None,
    names: AxisLabels,
    handles: Sequence[mpl.artist.Artist],
    controls: pd.DataFrame,
) -> None:
    """Draw the legend beside the panels: the given handles, then the controls that are drawn.

    Its title is that of the axis of the colours.
    """
    drawn = set(controls.loc[controls["ours"].notna(), "attack"])
    lines = []
    for control in [name for name in CONTROLS if name in drawn]:
        label = names.label("attack", names.specs["attack"][control])
        look: dict[str, Any] = {"color": NEUTRAL, "lw": 1, "ls": CONTROLS[control]}
        lines.append(mpl.lines.Line2D([], [], label=label, **look))
    title = "" if hue is None else hue.title(names)
    every = [*handles, *lines]
    canvas.legend(handles=every, title=title, loc="outside right center", frameon=False)


def references(
    points: pd.DataFrame, looks: Mapping[str, mpl.artist.Artist]
) -> list[mpl.artist.Artist]:
    """Return the legend handles of ``published`` values and of means over ``failed`` attacks.

    Those that are not among the points are left out; why points have no value is added.
    """
    drawn = {"published": points["published"].notna().any(), "failed": points["failed"].any()}
    missing = [] if points["ours"].notna().any() else list(dict.fromkeys(points["shown"]))
    texts = [fill(f"ours: {why_missing(metric)}", LINE) for metric in missing]
    notes = [mpl.lines.Line2D([], [], ls="", label=text) for text in texts]
    return [handle for column, handle in looks.items() if drawn[column]] + notes


TOGETHER = 0.85  # share of a place on x that its slots take
SLOT, LETTER = 0.2, 0.062  # inches, at least, of a slot and of a letter below the ticks


@dataclass(frozen=True)
class Slots:
    """Positions of bars or boxes: groups along x, centred at places, with slots side by side.

    A slot has a colour; its bar takes a share of it, and the rest, at its right, is for a marker.
    """

    places: dict[float | str, float]
    colours: dict[str, Colour]
    share: float

    @property
    def handles(self) -> list[mpl.artist.Artist]:
        """Entries of the legend."""
        named = ((hue, colour) for hue, colour in self.colours.items() if hue)
        return [mpl.patches.Patch(color=colour, label=hue) for hue, colour in named]

    @property
    def width(self) -> float:
        """Width of a bar."""
        return self.share * TOGETHER / len(self.colours)

    @property
    def rest(self) -> float:
        """Width of a slot without its bar."""
        return (1 - self.share) * TOGETHER / len(self.colours)

    def bar(self, x: float | str, hue: str) -> float:
        """Return the centre of a bar."""
        return self._left(x, hue) + self.width / 2

    def marker(self, x: float | str, hue: str) -> float:
        """Return the centre of the rest of a slot, beside its bar."""
        return self._left(x, hue) + self.width + self.rest / 2

    def inches(self, ticks: list[str]) -> float:
        """Return the width of a panel in which neither bars nor labels overlap, in inches."""
        longest = max(len(line) for tick in ticks for line in tick.splitlines())
        group = max(SLOT * len(self.colours) / TOGETHER, LETTER * longest)
        return max(PANEL[0], group * len(ticks))

    def _left(self, x: float | str, hue: str) -> float:
        number = list(self.colours).index(hue)
        return self.places[x] + TOGETHER * (number / len(self.colours) - 1 / 2)
