"""Base class of datasets, and what several are read by: images as arrays, and splits."""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.lazy import Image, ImageOps, sklearn
from gleak.core.spec import Spec, parameter

Modality = Literal["image", "tabular"]
Split = tuple[np.ndarray, np.ndarray]
"""Samples and labels."""
SPLITS = ("train", "test")
MODES = {1: "L", 3: "RGB"}
"""Modes of PIL by the number of channels."""
DEEP_GREYS = {("I", "PNG"), ("I", "PPM")}
"""Modes and formats of PIL in which 16-bit greys are read as 32-bit integers."""


class DatasetSpec(Spec):
    """A dataset: its properties that are known before it is read, and how to read it."""

    kind: ClassVar[str] = "dataset"
    modality: ClassVar[Modality] = "image"
    reads_data_dir: ClassVar[bool] = False

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample, (C, H, W) or (F,)."""

    @property
    def classes(self) -> int | None:
        """Number of classes; None if it is only known from the files."""
        return None

    @property
    def sizes(self) -> dict[str, int] | None:
        """Number of samples in each split; None if it is only known from the files."""
        return None

    def classes_in(self, data_dir: Path) -> int | None:
        """Return the number of classes, counted in the user's folder if needed; None if unknown."""
        return self.classes

    def size_in(self, data_dir: Path, split: str) -> int | None:
        """Return the number of samples in a split, counted in the folder if needed.

        None if it is unknown, as without the folder.
        """
        return self.sizes[split] if self.sizes else None

    def check_data(self, data_dir: Path, *, download: bool = False) -> None:
        """Check that the folder of data exists, if the dataset is read from it.

        Args:
            data_dir: folder with the user's image folders and tables; nothing is read or written
                there.
            download: accept missing data that `fetch` can download.

        Raises:
            DataError: names what is missing and how to fix it.
        """
        if self.reads_data_dir and not data_dir.is_dir():
            raise DataError(
                f"config: data_dir = {data_dir}: no such folder, but dataset {self} is read from "
                f"it; create it (mkdir -p {shlex.quote(str(data_dir))}), or set data_dir in "
                "config.yaml (or --config data_dir=...) to the folder that contains your data"
            )

    def fetch(self, data_dir: Path) -> None:
        """Download missing data into the data folder, for datasets that a library provides.

        Raises:
            DataError: the download failed, or there is no such folder.
        """

    @abstractmethod
    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read or generate the samples.

        Args:
            data_dir: folder with the user's image folders and tables.
            seed: for datasets that draw samples (random crops).

        Raises:
            DataError: there are no usable data; names the expected location.
        """


def size_field(default: int, *, largest: int = 1024) -> Any:
    return parameter(default, "side of the square images", unit="px", ge=4, le=largest)


def to_pixels(image: Image.Image, shape: tuple[int, ...]) -> np.ndarray:
    """Resize an image to fit the shorter side (bilinear, antialiased) and crop its centre.

    Greys of 16 bits are scaled by their largest value, 65535.

    Returns:
        Shape (C, H, W), uint8.

    Raises:
        ValueError: the pixels are 32-bit integers or floats, whose largest value is unknown.
    """
    if image.mode.startswith("I;16") or (image.mode, image.format) in DEEP_GREYS:
        levels = np.rint(np.asarray(image) / (65535 / 255))
        image = Image.fromarray(levels.astype(np.uint8))
    if image.mode[0] in "IF":
        raise ValueError(f"pixels of mode {image.mode}; convert it to 8 bits per channel")
    channels, height, width = shape
    converted = image.convert(MODES[channels])
    fitted = ImageOps.fit(converted, (width, height), method=Image.Resampling.BILINEAR)
    return np.asarray(fitted).reshape(height, width, channels).transpose(2, 0, 1)


def stack_pixels(images: Iterable[Image.Image], count: int, shape: tuple[int, ...]) -> np.ndarray:
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
    images = np.rint(np.asarray(intensities) * 255).astype(np.uint8)
    return stack_pixels(map(Image.fromarray, images), len(images), shape)


def read_pixels(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Read an image file as an array; Shape (C, H, W), uint8."""
    try:
        with Image.open(path) as image:
            return to_pixels(image, shape)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path}: cannot be read as an image ({error}); repair or remove the file"
        ) from error


def stratified(inputs: np.ndarray, labels: np.ndarray) -> tuple[Split, Split]:
    """Split samples 3:1 into train and test, in their order, stratified by class, deterministic."""
    chosen = sklearn.model_selection.train_test_split(
        np.arange(len(labels)), test_size=0.25, random_state=0, stratify=labels
    )
    train, test = (np.sort(indices) for indices in chosen)
    return (inputs[train], labels[train]), (inputs[test], labels[test])


def first_per_class(labels: np.ndarray, limit: int | None) -> np.ndarray:
    """Return ascending indices of the first ``limit`` samples per class (None: of all)."""
    if limit is None:
        return np.arange(len(labels))
    chosen = [np.flatnonzero(labels == label)[:limit] for label in np.unique(labels)]
    return np.sort(np.concatenate(chosen))


def join_splits(train: Split, test: Split, class_names: Sequence[str], **facts: Any) -> Dataset:
    """Create a `Dataset` of two splits; ``facts`` are its other fields."""
    return Dataset(
        train_inputs=train[0],
        train_labels=train[1].astype(np.int64),
        test_inputs=test[0],
        test_labels=test[1].astype(np.int64),
        class_names=np.array(class_names, dtype=object),
        **facts,
    )
