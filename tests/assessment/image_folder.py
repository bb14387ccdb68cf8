"""A folder of images of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def draw_images(folder: Path, classes: int = 2, each: int = 3) -> None:
    for name in range(classes):
        (folder / "test" / str(name)).mkdir(parents=True)
        for number in range(each):
            pixels = np.full((8, 8), 20 * number, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "test" / str(name) / f"{number}.png")
