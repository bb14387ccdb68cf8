"""Forest plots: values with their intervals in rows, each unit in panels of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from gleak.core.lazy import matplotlib as mpl
from gleak.core.lazy import seaborn as sns
from gleak.figures.canvas.style import (
    NEUTRAL,
    PAGE,
    PALETTE_SIZE,
    SMALL,
    colours,
    new_figure,
    save,
    theme,
)

LEFT, PLOT = 3.25, 3.0  # inches of the texts at the left and of a panel; verdicts are at its right
CHARACTERS = 62  # of a line of the texts at the left
LINE, GAP = 0.112, 0.09  # inches of a line, and between rows
TOP, AXIS, BETWEEN = 0.35, 0.34, 0.12  # inches of the legend, of an axis, and between panels
BEFORE = 0.05  # inches between texts and the panel
PADDING = 0.06  # share of a panel beside its values
SPREAD = 10
"""Claims of one panel differ in their largest values by no more than this factor."""
COLOURS = {"holds": 2, "fails": 3, "differs": 4}
"""Verdict -> number of its colour in the palette; others are grey."""
CLAIMED, OURS, PAPER = "claimed range", "ours, 95% interval", "paper"


@dataclass(frozen=True)
class Comparison:
    """A row: a value or difference that a claim is about.

    Args:
        claim: the claim in words; written once for rows that follow each other.
        label: of what is compared.
        unit: label of its axis.
        verdict: on all comparisons of the claim in one group of cells.
        first: it is the first of these; the verdict is written beside it.
        ours: our value.
        interval: of ours; ends may be infinite.
        paper: the paper's value, NaN for none.
        claimed: ends of the range that is claimed; may be infinite.
    """

    claim: str
    label: str
    unit: str
    verdict: str
    first: bool
    ours: float
    interval: tuple[float, float]
    paper: float
    claimed: tuple[float, float]

    @property
    def ends(self) -> list[float]:
        """Values that are shown, without infinite ones."""
        every = (self.ours, *self.interval, self.paper, *self.claimed)
        return [value for value in every if math.isfinite(value)]

    @property
    def extent(self) -> float:
        """Largest absolute value that is shown."""
        return max(map(abs, self.ends), default=0.0)

    def lines(self, above: Comparison | None) -> tuple[list[str], list[str]]:
        """Return the lines of the claim, none if it is that of the row above, and of the label."""
        new = above is None or above.claim != self.claim
        return wrap(self.claim, CHARACTERS) if new else [], wrap(self.label, CHARACTERS)


def draw_forest(rows: Sequence[Comparison], stem: Path) -> None:
    """Draw rows, at least one, in panels by unit and order of magnitude: ``stem.svg``, ``.png``."""
    with theme():
        _draw(rows, stem)


def _draw(rows: Sequence[Comparison], stem: Path) -> None:
    panels = split(rows)
    texts = [_texts(panel) for panel in panels]
    heights = [sum(map(_height, lines)) for lines in texts]
    height = TOP + sum(each + AXIS + BETWEEN for each in heights)
    canvas = new_figure(PAGE, height)
    _add_legend(canvas)
    top = height - TOP
    for panel, lines, own in zip(panels, texts, heights, strict=True):
        place = (LEFT / PAGE, (top - own) / height, PLOT / PAGE, own / height)
        axes = canvas.add_axes(place)
        _draw_panel(axes, panel, lines, own)
        top -= own + AXIS + BETWEEN
    save(canvas, stem)


def split(rows: Sequence[Comparison]) -> list[list[Comparison]]:
    """Return the rows of each panel: those of one unit whose values can be read together."""
    panels = []
    for unit in dict.fromkeys(row.unit for row in rows):
        left = [row for row in rows if row.unit == unit]
        extents = {
            claim: max(row.extent for row in left if row.claim == claim)
            for claim in dict.fromkeys(row.claim for row in left)
        }
        while left:
            least = max(extents[row.claim] for row in left) / SPREAD
            panels.append([row for row in left if extents[row.claim] >= least])
            left = [row for row in left if extents[row.claim] < least]
    return panels


Lines = tuple[list[str], list[str]]


def _texts(panel: Sequence[Comparison]) -> list[Lines]:
    return [row.lines(above) for row, above in zip(panel, [None, *panel], strict=False)]


def _height(lines: Lines) -> float:
    """Return the height of a row in inches."""
    return max(1, sum(map(len, lines))) * LINE + GAP


def _draw_panel(
    axes: mpl.axes.Axes, panel: Sequence[Comparison], texts: Iterable[Lines], height: float
) -> None:
    """Draw the rows of a panel, whose y are inches from its top."""
    low, high = _limits(panel)
    axes.set(xlim=(low, high), ylim=(height, 0), yticks=[])
    axes.set_xlabel(panel[0].unit, size=SMALL, labelpad=1)
    axes.tick_params(labelsize=SMALL, pad=1, length=2)
    axes.locator_params(axis="x", nbins=6)
    sns.despine(ax=axes, left=True)
    if low < 0 < high:
        axes.axvline(0, color=NEUTRAL, lw=0.6, zorder=1)
    y = 0.0
    for row, lines in zip(panel, texts, strict=True):
        size = _height(lines)
        _write(axes, row, lines, y + GAP / 2)
        _draw_row(axes, row, y + size / 2, min(size, 2 * LINE + GAP) * 0.4)
        y += size
        axes.axhline(y, color="0.9", lw=0.5, zorder=0)


def _limits(panel: Sequence[Comparison]) -> tuple[float, float]:
    ends = [end for row in panel for end in row.ends] or [0.0]
    margin = PADDING * (max(ends) - min(ends)) or 0.5
    return min(ends) - margin, max(ends) + margin


def _write(axes: mpl.axes.Axes, row: Comparison, lines: Lines, y: float) -> None:
    """Write the texts of a row at its left and its verdict at its right."""
    side = axes.get_yaxis_transform()
    look: dict[str, Any] = {"size": SMALL, "transform": side, "va": "top"}
    claim, label = lines
    for number, line in enumerate([*claim, *label]):
        colour = "0" if number < len(claim) else "0.4"
        axes.text(-LEFT / PLOT, y + number * LINE, line, color=colour, **look)
    if not row.first:
        return
    middle = y + (len(claim) + len(label)) * LINE / 2
    look |= {"va": "center", "weight": "bold", "color": _colour(row.verdict)}
    axes.text(1 + BEFORE, middle, row.verdict, **look)


def _draw_row(axes: mpl.axes.Axes, row: Comparison, y: float, half: float) -> None:
    low, high = axes.get_xlim()
    left, right = (min(max(end, low), high) for end in row.claimed)
    axes.fill_betweenx([y - half, y + half], left, right, color="0.88", lw=0, zorder=0.5)
    for end in row.claimed:
        if math.isfinite(end):
            axes.plot([end, end], [y - half, y + half], color="0.55", lw=0.8, zorder=1)
    ends = [min(max(end, low), high) for end in row.interval]
    look = {"color": _colour(row.verdict), "solid_capstyle": "butt", "zorder": 2}
    axes.plot(ends, [y, y], lw=2.6, **look)
    axes.plot([row.ours], [y], "o", ms=4.2, mec="white", mew=0.6, color=look["color"], zorder=3)
    if math.isfinite(row.paper):
        axes.plot([row.paper], [y], **_diamond())


def _diamond() -> dict[str, Any]:
    return {"marker": "D", "ms": 4, "mfc": "white", "mec": "0", "mew": 0.9, "ls": "", "zorder": 4}


def _colour(verdict: str) -> Any:
    number = COLOURS.get(verdict)
    return NEUTRAL if number is None else colours(PALETTE_SIZE)[number]


def _add_legend(canvas: mpl.figure.Figure) -> None:
    line = mpl.lines.Line2D
    handles = [
        mpl.patches.Patch(color="0.88", label=CLAIMED),
        line([], [], color="0.2", lw=2.6, marker="o", ms=4.2, mec="white", label=OURS),
        line([], [], label=PAPER, **_diamond()),
    ]
    canvas.legend(handles=handles, loc="upper left", ncols=3, frameon=False, borderaxespad=0.1)
