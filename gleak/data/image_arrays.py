"""Images as arrays of 8-bit intensities of one shape (C, H, W)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gleak.core.errors import DataError
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from PIL.Image import Image

MODES = {1: "L", 3: "RGB"}


def size_field(default: int, *, largest: int = 1024) -> Any:
    """Return the field ``size`` of a dataset of square images."""
    return parameter(default, "side of the square images", unit="px", ge=4, le=largest)


def to_pixels(image: Image, shape: tuple[int, ...]) -> np.ndarray:
    """Resize an image to fit the shorter side (bilinear, antialiased) and crop its centre.

    Args:
        image: an image with 8 bits per channel.
        shape: (C, H, W) with C 1 (grey) or 3 (RGB).

    Returns:
        Shape (C, H, W), uint8.

    Raises:
        ValueError: the image has more than 8 bits per channel, which would be truncated.
    """
    from PIL import ImageOps
    from PIL.Image import Resampling

    if image.mode[0] in "IF":
        raise ValueError(f"pixels of mode {image.mode}; convert it to 8 bits per channel")
    channels, height, width = shape
    converted = image.convert(MODES[channels])
    fitted = ImageOps.fit(converted, (width, height), method=Resampling.BILINEAR)
    return np.asarray(fitted).reshape(height, width, channels).transpose(2, 0, 1)


def stack_pixels(images: Iterable[Image], count: int, shape: tuple[int, ...]) -> np.ndarray:
    """Convert ``count`` images, opened one at a time, to an array; Shape (count, C, H, W)."""
    pixels = np.empty((count, *shape), dtype=np.uint8)
    for row, image in zip(pixels, images, strict=True):
        row[...] = to_pixels(image, shape)
    return pixels


def quantize(intensities: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Convert intensities in [0, 1] to an array of 8-bit images.

    Args:
        intensities: Shape (M, height, width) for grey, (M, height, width, 3) for RGB.
        shape: (C, H, W) of the result.

    Returns:
        Shape (M, C, H, W), uint8.
    """
    from PIL.Image import fromarray

    images = np.rint(np.asarray(intensities) * 255).astype(np.uint8)
    return stack_pixels(map(fromarray, images), len(images), shape)


def read_pixels(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Read an image file as an array; Shape (C, H, W), uint8.

    Raises:
        DataError: names the file that cannot be read as an 8-bit image.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            return to_pixels(image, shape)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path}: cannot be read as an image ({error}); repair or remove the file"
        ) from error
