"""Datasets in image folders, ``<root>/{train,test}/<class>/**/<image>``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator
from typing_extensions import override

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.registry import register
from gleak.core.spec import FILE_NAME, parameter
from gleak.data.base import DatasetSpec
from gleak.data.image_arrays import read_pixels, side
from gleak.data.splits import SPLITS, Split, join_splits

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
Listing = dict[str, list[Path]]


class ImageFolderDataset(DatasetSpec):
    """Square images from folders named after their classes.

    Classes are numbered in the order of their sorted names. A split whose folder is missing is
    empty; at least one must be there.
    """

    reads_data_dir: ClassVar[bool] = True

    size: int = side(32)
    limit: int | None = parameter(
        None, "at most so many images per class and split; none: all", ge=1
    )

    @property
    def shape(self) -> tuple[int, ...]:
        """RGB, unless a dataset says otherwise."""
        return (3, self.size, self.size)

    def root(self, data_dir: Path) -> Path:
        """Folder that holds the split folders."""
        return data_dir / self.name

    @override
    def classes_in(self, data_dir: Path) -> int | None:
        splits = [self.root(data_dir) / split for split in SPLITS]
        counts = [len(class_folders(split)) for split in splits if split.is_dir()]
        return self.classes or (counts[0] if counts else None)

    @override
    def check_data(self, data_dir: Path) -> None:
        """There must be a split."""
        super().check_data(data_dir)
        root = self.root(data_dir)
        if not any((root / split).is_dir() for split in SPLITS):
            raise DataError(f"{self.name}: neither {root}/train nor {root}/test; {advice(root)}")

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read the images, sorted by class and file name.

        Raises:
            DataError: no split folder, no images in a class, classes that differ between splits
                or from the known number, or a file that is not a whole image; names the path.
        """
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
    """What to do about a missing image folder: the layout wanted and the setting to change."""
    return (
        f"put images into {root}/train/<class>/ and {root}/test/<class>/ (one split may be left "
        f"out), or set data_dir in config.yaml (or --config data_dir=...) to the folder that "
        f"holds {root.name}/"
    )


def list_images(folder: Path, limit: int | None) -> Listing:
    """Image files of each class folder, sorted; other and hidden files are ignored.

    Args:
        folder: of one split.
        limit: keep the first so many of each class; None keeps all.

    Raises:
        DataError: no class folders, or one without images.
    """
    classes = class_folders(folder)
    if not classes:
        raise DataError(f"{folder}: holds no class folders; add <class>/<image> or remove it")
    listing = {c.name: _images_below(c)[:limit] for c in classes}
    for name, files in listing.items():
        if not files:
            kinds = " ".join(sorted(SUFFIXES))
            raise DataError(f"{folder / name}: holds no images ({kinds}); add some or remove it")
    return listing


def class_folders(folder: Path) -> list[Path]:
    """The folders of classes in that of a split, sorted; hidden ones are ignored."""
    return sorted(c for c in folder.iterdir() if c.is_dir() and not c.name.startswith("."))


def _images_below(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    )


def _class_names(root: Path, listings: dict[str, Listing]) -> list[str]:
    """The classes that all splits agree on."""
    first, *others = listings
    for split in others:
        differing = sorted(set(listings[first]) ^ set(listings[split]))
        if differing:
            named = ", ".join(differing[:5])
            raise DataError(
                f"{root}/{first} and {root}/{split} differ in {len(differing)} class folders "
                f"({named}); both must hold the same classes"
            )
    return list(listings[first])


def _read_split(listing: Listing, shape: tuple[int, ...]) -> Split:
    files = [path for paths in listing.values() for path in paths]
    labels = np.repeat(np.arange(len(listing)), [len(paths) for paths in listing.values()])
    inputs = np.empty((len(files), *shape), dtype=np.uint8)
    for place, path in zip(inputs, files, strict=True):
        place[...] = read_pixels(path, shape)
    return inputs, labels


@register("folder")
class Folder(ImageFolderDataset):
    """Images of your own: ``<data_dir>/<folder>/{train,test}/<class>/<image>``."""

    source: ClassVar[str] = "the user's own images"

    folder: str = parameter("images", "name of the folder below data_dir", pattern=FILE_NAME)
    channels: Annotated[Literal[1, 3], BeforeValidator(int)] = parameter(3, "1 for grey, 3 for RGB")

    @property
    def shape(self) -> tuple[int, ...]:
        """Grey or RGB, as asked."""
        return (self.channels, self.size, self.size)

    def root(self, data_dir: Path) -> Path:
        """The folder that is named."""
        return data_dir / self.folder


@register("imagenet")
class Imagenet(ImageFolderDataset):
    """ImageNet-1k: photographs; its validation images, sorted by class, as test.

    Class folders named by their WordNet ids come in the standard order of classes. All of it
    would fill 190 GB of memory, so a few images of each class are the default.
    """

    source: ClassVar[str] = "Russakovsky et al. 2015; ImageNet terms: non-commercial research"

    size: int = side(224)
    limit: int | None = parameter(10, "at most so many images per class and split; none: all", ge=1)

    @property
    def classes(self) -> int:
        """Always 1,000."""
        return 1000


@register("imagenet_sample")
class ImagenetSample(ImageFolderDataset):
    """A few photographs of ImageNet, of any of its classes, such as one image of each."""

    source: ClassVar[str] = "e.g. EliSchwartz/imagenet-sample-images; ImageNet terms"

    size: int = side(224)


@register("tiny_imagenet")
class TinyImagenet(ImageFolderDataset):
    """Tiny-ImageNet-200: 64 x 64 photographs; its validation images, sorted by class, as test."""

    source: ClassVar[str] = "Stanford CS231n; ImageNet terms: non-commercial research"

    size: int = side(64)

    @property
    def classes(self) -> int:
        """Always 200."""
        return 200
