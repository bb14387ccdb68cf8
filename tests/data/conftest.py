from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

WriteImage = Callable[..., Path]


@pytest.fixture
def write_image() -> WriteImage:
    """Return a function that writes a lossless image of one colour."""

    def write(path: Path, colour: int | tuple[int, ...], size: tuple[int, int] = (8, 8)) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(path)
        return path

    return write


@pytest.fixture
def pets(tmp_path: Path, write_image: WriteImage) -> Path:
    """Data folder with the image folder ``pets``: two classes, three and two images each."""
    for split, count in (("train", 3), ("test", 2)):
        for label, name in enumerate(("cat", "dog")):
            for number in range(count):
                colour = 100 * label + 10 * number + (split == "test")
                write_image(tmp_path / "pets" / split / name / f"{number}.png", (colour, 0, 200))
    return tmp_path


def columns_as_values(width: int, height: int) -> Image.Image:
    """Return an image whose pixel values are their column indices."""
    columns = np.tile(np.arange(width, dtype=np.uint8), (height, 1))
    return Image.fromarray(columns).convert("RGB")


@pytest.fixture
def ramp() -> Image.Image:
    """Image of 256 columns with different values."""
    return columns_as_values(256, 120)
