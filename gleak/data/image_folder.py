"""Datasets in image folders, ``<root>/{train,test}/<class>/**/<image>``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.registry import register
from gleak.core.spec import FILE_NAME, parameter
from gleak.data.base import SPLITS, DatasetSpec, Split, join_splits, read_pixels, size_field

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
Listing = dict[str, list[Path]]


class ImageFolderDataset(DatasetSpec):
    """Base class of datasets of square images in folders named after their classes.

    Classes are numbered in the order of their sorted names. A split without a folder is empty; at
    least one must exist.
    """

    reads_data_dir: ClassVar[bool] = True

    size: int = size_field(32)
    limit: int | None = parameter(
        None, "largest number of images per class and split; none: all", ge=1
    )

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.size, self.size)

    def root(self, data_dir: Path) -> Path:
        """Return the folder that contains the split folders."""
        return data_dir / self.name

    def classes_in(self, data_dir: Path) -> int | None:
        splits = [self.root(data_dir) / split for split in SPLITS]
        counts = [len(class_folders(split)) for split in splits if split.is_dir()]
        return self.classes or (counts[0] if counts else None)

    def size_in(self, data_dir: Path, split: str) -> int | None:
        folder = self.root(data_dir) / split
        if self.sizes or not folder.is_dir():
            return super().size_in(data_dir, split)
        return sum(map(len, list_images(folder, self.limit).values()))

    def check_data(self, data_dir: Path, *, download: bool = False) -> None:
        super().check_data(data_dir, download=download)
        root = self.root(data_dir)
        if not any((root / split).is_dir() for split in SPLITS):
            raise DataError(
                f"{self.name}: neither {root}/train nor {root}/test exists; {advice(root)}"
            )

    def load(self, data_dir: Path, seed: int) -> Dataset:
        self.check_data(data_dir)
        root = self.root(data_dir)
        listings = {s: list_images(root / s, self.limit) for s in SPLITS if (root / s).is_dir()}
        names = _class_names(root, listings)
        if self.classes not in (None, len(names)):
            raise DataError(
                f"{root}: {len(names)} class folders, but {self.name} has {self.classes} classes; "
                f"complete them, or use the dataset folder+folder={root.name}"
            )
        train, test = (_read_split(listings.get(split, {}), self.shape) for split in SPLITS)
        return join_splits(train, test, names)


def advice(root: Path) -> str:
    return (
        f"put images into {root}/train/<class>/ and {root}/test/<class>/ (one split may be "
        f"missing), or set data_dir in config.yaml (or --config data_dir=...) to the folder that "
        f"contains {root.name}/"
    )


def list_images(folder: Path, limit: int | None) -> Listing:
    """List the image files of each class folder of a split, sorted, at most a limit of each."""
    classes = class_folders(folder)
    if not classes:
        raise DataError(f"{folder}: no class folders; add <class>/<image> or remove it")
    listing = {}
    for own in classes:
        images = sorted(
            path
            for path in own.rglob("*")
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
        )
        if not images:
            kinds = " ".join(sorted(SUFFIXES))
            raise DataError(f"{own}: no images ({kinds}); add some or remove it")
        listing[own.name] = images[:limit]
    return listing


def class_folders(folder: Path) -> list[Path]:
    return sorted(c for c in folder.iterdir() if c.is_dir() and not c.name.startswith("."))


def _class_names(root: Path, listings: dict[str, Listing]) -> list[str]:
    first, *others = listings
    for split in others:
        differing = sorted(set(listings[first]) ^ set(listings[split]))
        if differing:
            named = ", ".join(differing[:5])
            raise DataError(
                f"{root}/{first} and {root}/{split} differ in {len(differing)} class folders "
                f"({named}); both must contain the same classes"
            )
    return list(listings[first])


def _read_split(listing: Listing, shape: tuple[int, ...]) -> Split:
    files = [path for paths in listing.values() for path in paths]
    labels = np.repeat(np.arange(len(listing)), [len(paths) for paths in listing.values()])
    inputs = np.empty((len(files), *shape), dtype=np.uint8)
    for row, path in zip(inputs, files, strict=True):
        row[...] = read_pixels(path, shape)
    return inputs, labels


@register("folder")
class Folder(ImageFolderDataset):
    """User's images in ``<data_dir>/<folder>/{train,test}/<class>/<image>``."""

    source: ClassVar[str] = "the user's own images"

    folder: str = parameter("images", "name of the folder below data_dir", pattern=FILE_NAME)
    channels: Annotated[Literal[1, 3], BeforeValidator(int)] = parameter(3, "1 for grey, 3 for RGB")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    def root(self, data_dir: Path) -> Path:
        return data_dir / self.folder


@register("imagenet")
class Imagenet(ImageFolderDataset):
    """ImageNet-1k; the test split is its validation split, sorted by class.

    With class folders named by WordNet ids, classes are in the standard order. By default only a
    few images per class are read, as all of them would take 190 GB of memory.
    """

    source: ClassVar[str] = "Russakovsky et al. 2015; ImageNet terms: non-commercial research"
    classes: ClassVar[int] = 1000

    size: int = size_field(224)
    limit: int | None = parameter(
        10, "largest number of images per class and split; none: all", ge=1
    )


@register("imagenet_sample")
class ImagenetSample(ImageFolderDataset):
    """A few images of ImageNet, of any of its classes, for example one of each."""

    source: ClassVar[str] = "e.g. EliSchwartz/imagenet-sample-images; ImageNet terms"

    size: int = size_field(224)


@register("tiny_imagenet")
class TinyImagenet(ImageFolderDataset):
    """Tiny-ImageNet-200 (64 x 64); the test split is its validation split, sorted by class."""

    source: ClassVar[str] = "Stanford CS231n; ImageNet terms: non-commercial research"
    classes: ClassVar[int] = 200

    size: int = size_field(64)
