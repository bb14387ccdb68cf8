"""Grids of images: rows of tiles with texts above, below and at the left."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from gleak.core.lazy import matplotlib as mpl
from gleak.figures.canvas.style import PAGE, new_figure

SIDE, SMALLEST = 0.85, 0.64  # inches of an image: where there is room, and at least
GAP = 0.1  # inches between images
ABOVE, BELOW = 0.15, 0.12  # inches of a line of text above and below an image
LEFT, LETTER = 0.6, 0.062  # inches for the labels of the rows: at least, and of a letter
SMALL_LETTER = 0.05  # inches of a letter below an image
MISSING: dict[str, Any] = {"hatch": "////", "facecolor": "0.95", "edgecolor": "0.7", "linewidth": 0}


@dataclass(frozen=True)
class Tile:
    """An image with texts."""

    pixels: np.ndarray | None
    """Shape (C, H, W); None: a hatched tile if there is a text below, else nothing."""
    above: str = ""
    below: str = ""


EMPTY = Tile(None)


@dataclass(frozen=True)
class TileRow:
    """Tiles beside each other, with a label at their left."""

    label: str
    tiles: list[Tile]

    @property
    def below(self) -> float:
        """Height of the texts below, in inches."""
        return BELOW * max(len(tile.below.splitlines()) for tile in self.tiles)

    @property
    def height(self) -> float:
        """Height of the texts with the gap to the next row, in inches."""
        return (ABOVE if any(tile.above for tile in self.tiles) else 0.0) + self.below + GAP

    def wrapped(self, letters: int) -> Self:
        """Return the row with lines of at most so many letters below the images."""
        tiles = [
            replace(
                tile,
                below="\n".join(
                    part
                    for line in tile.below.splitlines()
                    for part in textwrap.wrap(line, letters)
                ),
            )
            for tile in self.tiles
        ]
        return replace(self, tiles=tiles)


def draw_grid(rows: list[TileRow]) -> mpl.figure.Figure:
    """Draw rows of tiles below each other."""
    label = max(len(line) for row in rows for line in [*row.label.splitlines(), ""])
    margin = max(LEFT, LETTER * label + GAP)
    columns = max(len(row.tiles) for row in rows)
    side = max(SMALLEST, min(SIDE, (PAGE - margin) / columns - GAP))
    rows = [row.wrapped(int((side + GAP) / SMALL_LETTER)) for row in rows]
    width = margin + columns * (side + GAP)
    height = sum(row.height + side for row in rows)
    canvas, bottom = new_figure(width, height), height
    for row in rows:
        bottom -= row.height + side
        for column, tile in enumerate(row.tiles):
            left, low = margin + column * (side + GAP), bottom + GAP + row.below
            axes = canvas.add_axes((left / width, low / height, side / width, side / height))
            axes.set_axis_off()
            _draw_tile(axes, tile)
            if not column:
                _write(axes, -0.12, 0.5, row.label, ha="right", va="center", size=7.5)
    return canvas


def _draw_tile(axes: mpl.axes.Axes, tile: Tile) -> None:
    """Draw an image, without interpolation, and its texts; hatched if the image is missing."""
    if tile.pixels is not None:
        pixels = tile.pixels.transpose(1, 2, 0)
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    elif tile.below:
        axes.add_patch(mpl.patches.Rectangle((0, 0), 1, 1, transform=axes.transAxes, **MISSING))
    axes.set_title(tile.above, fontsize=7, pad=2)
    _write(axes, 0.5, -0.04, tile.below, ha="center", va="top", size=6.5, color="0.3")


def _write(axes: mpl.axes.Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Write a text beside an image, at a position relative to its sides."""
    axes.text(x, y, text, transform=axes.transAxes, **style)
