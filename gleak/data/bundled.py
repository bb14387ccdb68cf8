"""Image datasets bundled with scikit-image and scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.data.image_arrays import quantize, side, to_pixels
from gleak.data.splits import SPLITS, Split, join_splits, stratified
from gleak.runtime.seeding import stream

if TYPE_CHECKING:
    from PIL.Image import Image


@contextmanager
def open_bundled(path: str) -> Iterator[IO[bytes]]:
    """Open a file by its place in a package, ``skimage/data/astronaut.png``.

    Raises:
        DataError: the installed package does not carry it.
    """
    package, _, place = path.partition("/")
    try:
        with files(package).joinpath(place).open("rb") as file:
            yield file
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error}); install scikit-image 0.26 and scikit-learn from "
            f"their wheels, which carry it"
        ) from error


BRIGHTEST = 16


@register("digits")
class Digits(DatasetSpec):
    """Handwritten digits of 8 x 8 grey pixels, resized."""

    source: ClassVar[str] = "bundled with scikit-learn; UCI, Alpaydin and Kaynak 1998, CC BY 4.0"

    size: int = side(16)

    @property
    def shape(self) -> tuple[int, ...]:
        """Grey."""
        return (1, self.size, self.size)

    @property
    def classes(self) -> int:
        """Always 10."""
        return 10

    @property
    def sizes(self) -> dict[str, int]:
        """Of 1,797 digits, a quarter is for testing."""
        return {"train": 1347, "test": 450}

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """All digits; the same for every ``seed``."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        train, test = stratified(quantize(digits.images / BRIGHTEST, self.shape), digits.target)
        return join_splits(train, test, [str(name) for name in digits.target_names])


@register("faces")
class Faces(DatasetSpec):
    """100 faces and 100 patches of background, 25 x 25 grey pixels, resized."""

    source: ClassVar[str] = "bundled with scikit-image; from LFW, no explicit licence"

    size: int = side(32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Grey."""
        return (1, self.size, self.size)

    @property
    def classes(self) -> int:
        """Face or background."""
        return 2

    @property
    def sizes(self) -> dict[str, int]:
        """Of 200 patches, a quarter is for testing."""
        return {"train": 150, "test": 50}

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """All patches, faces first in the file; the same for every ``seed``.

        Raises:
            DataError: the installed scikit-image does not carry them.
        """
        with open_bundled("skimage/data/lfw_subset.npy") as file:
            patches = np.load(file)
        labels = np.repeat([1, 0], len(patches) // 2)
        train, test = stratified(quantize(patches, self.shape), labels)
        return join_splits(train, test, ["background", "face"])


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
