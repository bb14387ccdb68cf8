"""Crops of the photographs bundled with scikit-image and scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.data.bundled import open_bundled
from gleak.data.image_folder import SPLITS
from gleak.data.pixels import side, to_pixels
from gleak.data.splits import Split, join_splits
from gleak.runtime.seeding import stream

if TYPE_CHECKING:
    from PIL.Image import Image

PHOTOGRAPHS = {
    "astronaut": "skimage/data/astronaut.png",
    "cat": "skimage/data/chelsea.png",
    "coffee": "skimage/data/coffee.png",
    "flower": "sklearn/datasets/images/flower.jpg",
    "galaxies": "skimage/data/hubble_deep_field.jpg",
    "motorcycle": "skimage/data/motorcycle_left.png",
    "retina": "skimage/data/retina.jpg",
    "rocket": "skimage/data/rocket.jpg",
    "temple": "sklearn/datasets/images/china.jpg",
    "tissue": "skimage/data/ihc.png",
}
NARROWEST_HALF = 225
FLATTEST = 8  # standard deviation of 8-bit intensities
TRIES = 100


@register("photos")
class Photos(DatasetSpec):
    """Random square crops of ten colour photographs, each photograph a class.

    Train crops come from a photograph's left half and test crops from its right half, so no
    pixel is in both splits. Sides range from ``size`` to the shorter side of the half, uniformly.
    """

    source: ClassVar[str] = "bundled with scikit-image (public domain, CC0), scikit-learn (CC BY)"

    size: int = side(32, largest=NARROWEST_HALF)
    crops: int = parameter(64, "crops of each photograph in each split", ge=1)

    @property
    def shape(self) -> tuple[int, ...]:
        """RGB."""
        return (3, self.size, self.size)

    @property
    def classes(self) -> int:
        """One for each photograph."""
        return len(PHOTOGRAPHS)

    @property
    def sizes(self) -> dict[str, int]:
        """``crops`` of each photograph in both splits."""
        return dict.fromkeys(SPLITS, self.crops * len(PHOTOGRAPHS))

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Draw the crops, each photograph and split from its own random stream.

        Raises:
            DataError: the installed packages do not carry them.
        """
        pictures = [read_photograph(name) for name in PHOTOGRAPHS]
        train, test = (self._draw_split(pictures, split, seed) for split in SPLITS)
        return join_splits(train, test, list(PHOTOGRAPHS))

    def _draw_split(self, pictures: list[Image], split: str, seed: int) -> Split:
        crops = [
            draw_crops(
                half(picture, split),
                self.size,
                self.crops,
                stream(seed, "crops", label, SPLITS.index(split)),
            )
            for label, picture in enumerate(pictures)
        ]
        return np.concatenate(crops), np.repeat(np.arange(len(pictures)), self.crops)


def read_photograph(name: str) -> Image:
    """One of `PHOTOGRAPHS`, whole, in RGB.

    Raises:
        DataError: the installed package does not carry it.
    """
    from PIL.Image import open as open_image

    with open_bundled(PHOTOGRAPHS[name]) as file:
        return open_image(file).convert("RGB")


def half(photograph: Image, split: str) -> Image:
    """The part of a photograph that a split draws from: left for train, right for test."""
    middle = photograph.width // 2
    left, right = (0, middle) if split == "train" else (middle, photograph.width)
    return photograph.crop((left, 0, right, photograph.height))


def draw_crops(region: Image, size: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Square crops of random side (``size`` up to the shorter side) and place, resized.

    A crop that is nearly flat is drawn again, at most 100 times.

    Args:
        region: where to crop; both sides at least ``size``.
        size: side of the crops given back, in pixels.
        count: number of crops.
        generator: source of randomness; the first crops do not depend on ``count``.

    Returns:
        Shape (count, 3, size, size), uint8.
    """
    return np.stack([_draw_crop(region, size, generator) for _ in range(count)])


def _draw_crop(region: Image, size: int, generator: np.random.Generator) -> np.ndarray:
    """A random square; one that is all sky is drawn again: it would leave nothing to recover."""
    for _ in range(TRIES):
        edge = int(generator.integers(size, min(region.size), endpoint=True))
        left = int(generator.integers(0, region.width - edge, endpoint=True))
        top = int(generator.integers(0, region.height - edge, endpoint=True))
        crop = region.crop((left, top, left + edge, top + edge))
        pixels = to_pixels(crop, (3, size, size))
        if pixels.std(axis=(1, 2)).max() >= FLATTEST:
            break
    return pixels
