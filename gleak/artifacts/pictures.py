"""Samples as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

SMALLEST_SIDE = 128
GAP = 4


def picture(sample: np.ndarray) -> Image:
    """Return an image of Shape (C, H, W) with one or three channels as an 8-bit picture."""
    from PIL.Image import fromarray

    if sample.dtype != np.uint8:
        sample = np.round(sample.clip(0, 1) * 255).astype(np.uint8)
    grey = len(sample) == 1
    return fromarray(sample[0] if grey else np.ascontiguousarray(sample.transpose(1, 2, 0)))


def enlarged(image: Image) -> Image:
    """Enlarge by the least integer factor that gives a shorter side of `SMALLEST_SIDE` pixels."""
    from PIL.Image import Resampling

    factor = -(-SMALLEST_SIDE // min(image.size))
    size: Any = (image.width * factor, image.height * factor)
    return image if factor == 1 else image.resize(size, Resampling.NEAREST)


def picture_grid(rows: Sequence[Sequence[np.ndarray]]) -> Image:
    """Return rows of images, equally large, Shape (C, H, W), as one picture of enlarged ones."""
    from PIL import Image

    tiles = [[enlarged(picture(sample)) for sample in row] for row in rows]
    width, height = tiles[0][0].size
    size = (max(map(len, tiles)) * (width + GAP) - GAP, len(tiles) * (height + GAP) - GAP)
    grid = Image.new("RGB", size, "white")
    for row, line in enumerate(tiles):
        for column, tile in enumerate(line):
            grid.paste(tile, (column * (width + GAP), row * (height + GAP)))
    return grid
