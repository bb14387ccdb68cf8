"""Image datasets bundled with scikit-image, scikit-learn and matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO, ClassVar

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.lazy import Image, ImageOps, sklearn
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import (
    SPLITS,
    DatasetSpec,
    Split,
    join_splits,
    quantize,
    size_field,
    stratified,
    to_pixels,
)
from gleak.runtime.seeding import stream


@contextmanager
def open_bundled(path: str) -> Iterator[IO[bytes]]:
    """Open a file of an installed package by its path, such as ``skimage/data/astronaut.png``.

    scikit-image's own functions would download a missing file.
    """
    package, _, name = path.partition("/")
    try:
        with files(package).joinpath(name).open("rb") as file:
            yield file
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error}); install scikit-image 0.26, scikit-learn and "
            f"matplotlib from their wheels, which contain it"
        ) from error


BRIGHTEST = 16


@register("digits")
class Digits(DatasetSpec):
    """Handwritten digits, 8 x 8 grey pixels, resized."""

    source: ClassVar[str] = "bundled with scikit-learn; UCI, Alpaydin and Kaynak 1998, CC BY 4.0"
    classes: ClassVar[int] = 10

    size: int = size_field(16)

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, self.size, self.size)

    @property
    def sizes(self) -> dict[str, int]:
        return {"train": 1347, "test": 450}

    def load(self, data_dir: Path, seed: int) -> Dataset:
        digits = sklearn.datasets.load_digits()
        train, test = stratified(quantize(digits.images / BRIGHTEST, self.shape), digits.target)
        return join_splits(train, test, [str(name) for name in digits.target_names])


@register("faces")
class Faces(DatasetSpec):
    """100 faces and 100 background patches, 25 x 25 grey pixels, resized."""

    source: ClassVar[str] = "bundled with scikit-image; from LFW, no explicit licence"
    classes: ClassVar[int] = 2

    size: int = size_field(32)

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, self.size, self.size)

    @property
    def sizes(self) -> dict[str, int]:
        return {"train": 150, "test": 50}

    def load(self, data_dir: Path, seed: int) -> Dataset:
        with open_bundled("skimage/data/lfw_subset.npy") as file:
            patches = np.load(file)
        labels = np.repeat([1, 0], len(patches) // 2)  # faces come first
        train, test = stratified(quantize(patches, self.shape), labels)
        return join_splits(train, test, ["background", "face"])


Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Photograph:
    """A colour photograph in an installed package, at ``path``.

    Crops are drawn from boxes (left, top, right, bottom) in pixels without a pixel in common; that
    of the test split contains the subject.
    """

    path: str
    train: Box
    test: Box

    def read(self) -> Image.Image:
        with open_bundled(self.path) as file:
            return Image.open(file).convert("RGB")

    def part(self, split: str) -> Image.Image:
        return self.read().crop(self.train if split == "train" else self.test)


SKIMAGE = "skimage/data"
SKLEARN = "sklearn/datasets/images"
MATPLOTLIB = "matplotlib/mpl-data/sample_data"

PHOTOGRAPHS = {
    "retina": Photograph(
        f"{SKIMAGE}/retina.jpg", train=(950, 200, 1411, 1211), test=(0, 230, 950, 1180)
    ),
    "cat": Photograph(f"{SKIMAGE}/chelsea.png", train=(0, 0, 120, 300), test=(120, 10, 410, 300)),
    "coffee": Photograph(f"{SKIMAGE}/coffee.png", train=(440, 0, 600, 400), test=(60, 0, 440, 380)),
    "flower": Photograph(
        f"{SKLEARN}/flower.jpg", train=(480, 0, 640, 427), test=(140, 40, 480, 380)
    ),
    "galaxies": Photograph(
        f"{SKIMAGE}/hubble_deep_field.jpg", train=(0, 0, 600, 872), test=(640, 380, 900, 640)
    ),
    "motorcycle": Photograph(
        f"{SKIMAGE}/motorcycle_left.png", train=(0, 0, 190, 500), test=(190, 20, 670, 500)
    ),
    "officer": Photograph(
        f"{MATPLOTLIB}/grace_hopper.jpg", train=(0, 345, 512, 600), test=(100, 0, 440, 340)
    ),
    "astronaut": Photograph(
        f"{SKIMAGE}/astronaut.png", train=(0, 290, 512, 512), test=(75, 0, 365, 290)
    ),
    "rocket": Photograph(
        f"{SKIMAGE}/rocket.jpg", train=(0, 0, 200, 427), test=(200, 130, 490, 420)
    ),
    "temple": Photograph(f"{SKLEARN}/china.jpg", train=(385, 0, 640, 427), test=(15, 15, 385, 400)),
}
LARGEST = 260  # side of the smallest part with a subject


@register("photos")
class Photos(DatasetSpec):
    """Square crops of ten colour photographs, each of which is a class.

    The subject of a photograph (a face, a cup, a temple) is in the part that test crops are drawn
    from; train crops are drawn from another part, so that the splits share no pixel. Parts smaller
    than ``size`` are enlarged.
    """

    source: ClassVar[str] = (
        "bundled with scikit-image and matplotlib (public domain, CC0), scikit-learn (CC BY)"
    )
    classes: ClassVar[int] = len(PHOTOGRAPHS)

    size: int = size_field(32, largest=LARGEST)
    crops: int = parameter(64, "number of crops of each photograph in each split", ge=1)

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.size, self.size)

    @property
    def sizes(self) -> dict[str, int]:
        return dict.fromkeys(SPLITS, self.crops * len(PHOTOGRAPHS))

    def load(self, data_dir: Path, seed: int) -> Dataset:
        train, test = (self._draw_split(split, seed) for split in SPLITS)
        return join_splits(train, test, list(PHOTOGRAPHS))

    def _draw_split(self, split: str, seed: int) -> Split:
        crops = []
        for label, photograph in enumerate(PHOTOGRAPHS.values()):
            random = stream(seed, "crops", label, SPLITS.index(split))
            crops.append(draw_crops(photograph.part(split), self.size, self.crops, random))
        return np.concatenate(crops), np.repeat(np.arange(len(crops)), self.crops)


def central_squares(names: Iterable[str], size: int) -> np.ndarray:
    """Read photographs and resize the largest square at the centre of each.

    Returns:
        Shape (N, 3, size, size), uint8.
    """
    return np.stack([to_pixels(PHOTOGRAPHS[name].read(), (3, size, size)) for name in names])


def draw_crops(
    part: Image.Image, size: int, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw square crops of random position and side, half of them mirrored, resized.

    Sides are uniform between three quarters of the shorter side of the part and all of it. A crop
    with almost no contrast is drawn again, at most 100 times. The first crops do not depend on
    ``count``.

    Returns:
        Shape (count, 3, size, size), uint8.
    """
    crops = np.empty((count, 3, size, size), dtype=np.uint8)
    for pixels in crops:
        for _ in range(100):
            pixels[...] = to_pixels(_draw_square(part, generator), pixels.shape)
            if pixels.std(axis=(1, 2)).max() >= 8:
                break
    return crops


def _draw_square(part: Image.Image, generator: np.random.Generator) -> Image.Image:
    widest = min(part.size)
    edge = int(generator.integers(round(0.75 * widest), widest, endpoint=True))
    left = int(generator.integers(0, part.width - edge, endpoint=True))
    top = int(generator.integers(0, part.height - edge, endpoint=True))
    square = part.crop((left, top, left + edge, top + edge))
    return ImageOps.mirror(square) if generator.integers(2) else square
