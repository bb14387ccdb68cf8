"""Drawing of images."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gleak.core.numbers import REFUSED, format_number
from gleak.experiments.figure_spec import FigureData, Row, Shown
from gleak.experiments.labels import AxisLabels
from gleak.figures.images import Images
from gleak.figures.picks import Values, read_values
from gleak.figures.strips import (
    NO_VALUES,
    RESULT,
    SNAPSHOT,
    TRUTH,
    Picture,
    Strip,
    read_strips,
    tabulate_strips,
)
from gleak.figures.style import new_figure, save, save_numbers, theme

SIDE = 0.85  # inches of an image
GAP = 0.1  # inches between images
ABOVE, BELOW = 0.15, 0.12  # inches of a line of text above and below an image
LEFT = 0.9  # inches for the labels of the lines
MISSING: dict[str, Any] = {"hatch": "////", "facecolor": "0.95", "edgecolor": "0.7", "linewidth": 0}


@dataclass(frozen=True)
class Entry:
    """An image and what stands above and below it.

    Args:
        pixels: Shape (C, H, W); None: a hatched tile, or an empty place if nothing is said of it.
        above, below: "" for nothing.
    """

    pixels: np.ndarray | None
    above: str = ""
    below: str = ""


EMPTY = Entry(None)


@dataclass(frozen=True)
class Line:
    """Images beside each other, with a label at their left."""

    label: str
    entries: list[Entry]

    @property
    def above(self) -> float:
        """Inches of the texts above."""
        return ABOVE if any(entry.above for entry in self.entries) else 0.0

    @property
    def below(self) -> float:
        """Inches of the texts below."""
        return BELOW * max(len(entry.below.splitlines()) for entry in self.entries)

    @property
    def height(self) -> float:
        """Inches of all of it, with the gap to the next line."""
        return self.above + SIDE + self.below + GAP


def draw_images(figure: Images, material: FigureData, stem: Path) -> None:
    """Write an image grid and the errors of the images in it."""
    strips = [
        strip
        for shown in material.shown
        for strip in read_strips(figure, shown, _values(figure, shown, material))
    ]
    save_numbers(tabulate_strips(strips), stem)
    lines = LAYOUTS[figure.layout](strips, material.names)
    with theme():
        save(_draw(lines), stem)


def _values(figure: Images, shown: Shown, material: FigureData) -> Values:
    """The numbers that results and picks need; none where the images themselves tell."""
    told = figure.pick == "first" and figure.metric == "mse"
    return NO_VALUES if told else read_values(figure, shown, material.scores)


def lay_out_search(strips: list[Strip], names: AxisLabels) -> list[Line]:
    """One line per strip; results stand below each other, whatever comes before them."""
    columns = max(len(strip.pictures) for strip in strips)
    varying = names.varying([strip.shown.row for strip in strips])
    lines = []
    for strip in strips:
        *before, result = [_entry(strip, picture, names) for picture in strip.pictures]
        gap = [EMPTY] * (columns - len(strip.pictures))
        sample = f", sample {strip.sample}" if strip.sample else ""
        whose = [] if strip.shown.reason else [f"victim {strip.victim}{sample}"]
        texts = [*_headings(strip.shown.row, names, varying), *whose]
        lines.append(Line("\n".join(texts), [*before, *gap, result]))
    return lines


def lay_out_results(strips: list[Strip], names: AxisLabels) -> list[Line]:
    """A line of the truth, then the results of each cell that follows and has the same truth."""
    cells = [list(run) for _, run in groupby(strips, key=lambda strip: strip.shown)]
    groups = _sharing_truth(cells)
    varying = names.varying([strip.shown.row for strip in strips])
    return [line for group in groups for line in _group(group, names, varying)]


def _sharing_truth(cells: list[list[Strip]]) -> list[list[list[Strip]]]:
    """Cells in a row that have the same truth; one that was refused goes with those before it."""
    groups: list[list[list[Strip]]] = []
    truth: list[bytes] = []
    for cell in cells:
        own = _truth_of(cell)
        if not groups or (own and truth and own != truth):
            groups.append([])
            truth = own
        groups[-1].append(cell)
        truth = truth or own
    return groups


def _group(cells: list[list[Strip]], names: AxisLabels, varying: list[str]) -> list[Line]:
    """The lines of cells that share a truth; what they have in common stands beside it."""
    rows = [cell[0].shown.row for cell in cells]
    inside = [level for level in varying if len({row[level] for row in rows}) > 1]
    common = _headings(rows[0], names, [level for level in varying if level not in inside])
    sent = next((cell for cell in cells if not cell[0].shown.reason), [])
    truths = [Entry(strip.pictures[0].pixels, above=strip.place) for strip in sent]
    results = [
        Line(
            "\n".join(_headings(row, names, inside)) or RESULT,
            [replace(_entry(strip, strip.pictures[-1], names), above="") for strip in cell],
        )
        for row, cell in zip(rows, cells, strict=True)
    ]
    return [Line("\n".join([*common, TRUTH]), truths or [EMPTY]), *results]


def _truth_of(cell: list[Strip]) -> list[bytes]:
    """What tells the truth of a cell from others; nothing where the cell was refused."""
    truths = [strip.pictures[0].pixels for strip in cell]
    return [truth.tobytes() for truth in truths if truth is not None]


LAYOUTS: dict[str, Callable[[list[Strip], AxisLabels], list[Line]]] = {
    "search": lay_out_search,
    "results": lay_out_results,
}


def _headings(row: Row, names: AxisLabels, levels: list[str]) -> list[str]:
    return [names.heading(level, row[level]) for level in levels]


def _entry(strip: Strip, picture: Picture, names: AxisLabels) -> Entry:
    """A picture with its texts; what was not kept of a search leaves its place empty."""
    if picture.pixels is None and picture.step != RESULT:
        return EMPTY
    return Entry(picture.pixels, _above(picture), _below(strip, picture, names))


def _above(picture: Picture) -> str:
    """``start``, ``iteration 20``, ``result (113)``: what it is and when it was taken."""
    if picture.step == SNAPSHOT:
        return f"iteration {picture.iteration}"
    after = picture.step == RESULT and picture.iteration is not None
    return f"{picture.step} ({picture.iteration})" if after else picture.step


def _below(strip: Strip, picture: Picture, names: AxisLabels) -> str:
    if picture.step == TRUTH:
        return ""
    if strip.shown.reason:
        return REFUSED
    verdict = "" if strip.converged or picture.step != RESULT else "\nnot converged"
    found = "not found" if picture.pixels is None else _number(strip, picture, names)
    return f"{found}{verdict}"


def _number(strip: Strip, picture: Picture, names: AxisLabels) -> str:
    """``SSIM 0.7`` under a result; the error where the metric is that or has no value."""
    if strip.metric == "mse" or picture.step != RESULT or math.isnan(strip.value):
        return f"MSE {format_number(picture.mse)}"
    return f"{names.metric(strip.metric)} {format_number(strip.value)}"


def _draw(lines: list[Line]) -> Figure:
    width = LEFT + max(len(line.entries) for line in lines) * (SIDE + GAP)
    height = sum(line.height for line in lines)
    canvas, bottom = new_figure(width, height), height
    for line in lines:
        bottom -= line.height
        for column, entry in enumerate(line.entries):
            left, low = LEFT + column * (SIDE + GAP), bottom + GAP + line.below
            axes = canvas.add_axes((left / width, low / height, SIDE / width, SIDE / height))
            axes.set_axis_off()
            _show(axes, entry)
            if not column:
                _write(axes, -0.12, 0.5, line.label, ha="right", va="center", size=7.5)
    return canvas


def _show(axes: Axes, entry: Entry) -> None:
    """An image and its texts, or a hatched tile with the texts of one that is missing."""
    if entry.pixels is not None:
        _show_pixels(axes, entry.pixels)
    elif entry.below:
        tile = Rectangle((0, 0), 1, 1, transform=axes.transAxes, **MISSING)
        axes.add_patch(tile)
    axes.set_title(entry.above, fontsize=7, pad=2)
    _write(axes, 0.5, -0.04, entry.below, ha="center", va="top", size=6.5, color="0.3")


def _show_pixels(axes: Axes, image: np.ndarray) -> None:
    """An image of Shape (C, H, W), enlarged without smoothing."""
    pixels = image.transpose(1, 2, 0)
    grey = pixels.shape[2] == 1
    axes.imshow(
        pixels[..., 0] if grey else pixels,
        cmap="gray" if grey else None,
        vmin=0,
        vmax=1,
        interpolation="nearest",
    )


def _write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Text beside an image, placed in shares of its sides."""
    axes.text(x, y, text, transform=axes.transAxes, **style)
