"""Image datasets bundled with scikit-image and scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from gleak.data.image_arrays import quantize, size_field, to_pixels
from gleak.data.splits import SPLITS, Split, join_splits, stratified
from gleak.runtime.seeding import stream

if TYPE_CHECKING:
    from PIL.Image import Image


@contextmanager
def open_bundled(path: str) -> Iterator[IO[bytes]]:
    """Open a file of an installed package by its path, such as ``skimage/data/astronaut.png``.

    Files are opened directly, as scikit-image's own functions download a missing file.

    Raises:
        DataError: the installed package does not contain the file.
    """
    package, _, name = path.partition("/")
    try:
        with files(package).joinpath(name).open("rb") as file:
            yield file
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error}); install scikit-image 0.26 and scikit-learn from "
            f"their wheels, which contain it"
        ) from error


BRIGHTEST = 16


@register("digits")
class Digits(DatasetSpec):
    """Handwritten digits, 8 x 8 grey pixels, resized."""

    source: ClassVar[str] = "bundled with scikit-learn; UCI, Alpaydin and Kaynak 1998, CC BY 4.0"

    size: int = size_field(16)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an image, grey."""
        return (1, self.size, self.size)

    @property
    def classes(self) -> int:
        """Number of classes, 10."""
        return 10

    @property
    def sizes(self) -> dict[str, int]:
        """Number of samples in each split; a quarter of 1,797 is for testing."""
        return {"train": 1347, "test": 450}

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read all digits, independently of ``seed``."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        train, test = stratified(quantize(digits.images / BRIGHTEST, self.shape), digits.target)
        return join_splits(train, test, [str(name) for name in digits.target_names])


@register("faces")
class Faces(DatasetSpec):
    """100 faces and 100 background patches, 25 x 25 grey pixels, resized."""

    source: ClassVar[str] = "bundled with scikit-image; from LFW, no explicit licence"

    size: int = size_field(32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an image, grey."""
        return (1, self.size, self.size)

    @property
    def classes(self) -> int:
        """Number of classes: face and background."""
        return 2

    @property
    def sizes(self) -> dict[str, int]:
        """Number of samples in each split; a quarter of 200 is for testing."""
        return {"train": 150, "test": 50}

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read all patches, independently of ``seed``; faces come first in the file.

        Raises:
            DataError: the installed scikit-image does not contain them.
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
    """Random square crops of ten colour photographs, each of which is a class.

    Train crops are drawn from the left half of a photograph and test crops from its right half, so
    that the splits share no pixel. Sides are uniform between ``size`` and the shorter side of the
    half.
    """

    source: ClassVar[str] = "bundled with scikit-image (public domain, CC0), scikit-learn (CC BY)"

    size: int = size_field(32, largest=NARROWEST_HALF)
    crops: int = parameter(64, "number of crops of each photograph in each split", ge=1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an image, RGB."""
        return (3, self.size, self.size)

    @property
    def classes(self) -> int:
        """Number of photographs."""
        return len(PHOTOGRAPHS)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of samples in each split, ``crops`` per photograph."""
        return dict.fromkeys(SPLITS, self.crops * len(PHOTOGRAPHS))

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Draw the crops, with a random stream for each photograph and split.

        Raises:
            DataError: the installed packages do not contain the photographs.
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
    """Read one of `PHOTOGRAPHS` in RGB.

    Raises:
        DataError: the installed package does not contain it.
    """
    from PIL.Image import open as open_image

    with open_bundled(PHOTOGRAPHS[name]) as file:
        return open_image(file).convert("RGB")


def central_squares(names: Iterable[str], size: int) -> np.ndarray:
    """Read photographs and resize the largest square at the centre of each.

    Args:
        names: keys of `PHOTOGRAPHS`.
        size: side of the squares, in pixels.

    Returns:
        Shape (N, 3, size, size), uint8.

    Raises:
        DataError: the installed packages do not contain the photographs.
    """
    return np.stack([to_pixels(read_photograph(name), (3, size, size)) for name in names])


def half(photograph: Image, split: str) -> Image:
    """Return the half of a photograph that a split draws from: left for train, right for test."""
    middle = photograph.width // 2
    left, right = (0, middle) if split == "train" else (middle, photograph.width)
    return photograph.crop((left, 0, right, photograph.height))


def draw_crops(region: Image, size: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw square crops of random position and side (``size`` up to the shorter side), resized.

    A crop with almost no contrast is drawn again, at most 100 times.

    Args:
        region: image to crop; both sides at least ``size``.
        size: side of the returned crops, in pixels.
        count: number of crops.
        generator: random generator; the first crops do not depend on ``count``.

    Returns:
        Shape (count, 3, size, size), uint8.
    """
    return np.stack([_draw_crop(region, size, generator) for _ in range(count)])


def _draw_crop(region: Image, size: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a random square; draw again if there is almost no contrast."""
    for _ in range(TRIES):
        edge = int(generator.integers(size, min(region.size), endpoint=True))
        left = int(generator.integers(0, region.width - edge, endpoint=True))
        top = int(generator.integers(0, region.height - edge, endpoint=True))
        crop = region.crop((left, top, left + edge, top + edge))
        pixels = to_pixels(crop, (3, size, size))
        if pixels.std(axis=(1, 2)).max() >= FLATTEST:
            break
    return pixels
