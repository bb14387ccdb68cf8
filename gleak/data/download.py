"""Datasets that a library can download; an image folder of the user goes before."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.lazy import Image, sklearn
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import (
    DatasetSpec,
    Split,
    first_per_class,
    join_splits,
    size_field,
    stack_pixels,
    stratified,
)
from gleak.data.image_folder import ImageFolderDataset, advice
from gleak.runtime.torchvision_ops import ensure_operators


class DownloadableDataset(ImageFolderDataset):
    """Base class of datasets that a library can download, unless the user has an image folder.

    They are read from ``<data_dir>/<name>`` if it exists, else from the download in
    ``<data_dir>/<library>``. ``unpacked`` is the folder in it that a download leaves.
    """

    library: ClassVar[str]
    unpacked: ClassVar[str]

    def home(self, data_dir: Path) -> Path:
        """Return the folder of the library's downloads."""
        return data_dir / self.library

    def check_data(self, data_dir: Path, *, download: bool = False) -> None:
        DatasetSpec.check_data(self, data_dir)
        root, home = self.root(data_dir), self.home(data_dir)
        if root.is_dir():
            super().check_data(data_dir)
        elif not download and not (home / self.unpacked).is_dir():
            raise DataError(
                f"{self.name}: neither {root} nor a download in {home} exists; to download it, add "
                f"--config download=true; else {advice(root)}"
            )

    def load(self, data_dir: Path, seed: int) -> Dataset:
        self.check_data(data_dir)
        root, home = self.root(data_dir), self.home(data_dir)
        if root.is_dir():
            return super().load(data_dir, seed)
        try:
            return self.read(home, download=False)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"{self.name}: the download in {home} cannot be read ({error}); to complete it, "
                f"add --config download=true; else {advice(root)}"
            ) from error

    def fetch(self, data_dir: Path) -> None:
        """Download missing files, unless there is an image folder; parallel jobs wait."""
        self.check_data(data_dir, download=True)
        root, home = self.root(data_dir), self.home(data_dir)
        if root.is_dir():
            return
        try:
            home.mkdir(exist_ok=True)
            from filelock import FileLock

            with FileLock(home / f".{self.name}.lock"):
                self.read(home, download=True)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"{self.name}: no folder {root}, and the download into {home} failed ({error}); "
                f"{advice(root)}"
            ) from error

    @abstractmethod
    def read(self, home: Path, *, download: bool) -> Dataset:
        """Read the downloaded files.

        Args:
            home: folder of the library's downloads.
            download: first download files that are missing.

        Raises:
            OSError: a file is missing, there is no network, or ``home`` is not writable.
            RuntimeError: files are missing or corrupted.
        """


class TorchvisionDataset(DownloadableDataset):
    """Base class of datasets that torchvision downloads, with their own train and test split.

    ``archive`` names the class in ``torchvision.datasets``.
    """

    library: ClassVar[str] = "torchvision"
    archive: ClassVar[str]

    def read(self, home: Path, *, download: bool) -> Dataset:
        ensure_operators()
        from torchvision import datasets

        opened = getattr(datasets, self.archive)
        archives = [opened(home, train=train, download=download) for train in (True, False)]
        train, test = (self._split(archive) for archive in archives)
        names = [name.partition(" - ")[0] for name in archives[0].classes]
        return join_splits(train, test, names)

    def _split(self, archive: Any) -> Split:
        labels = np.asarray(archive.targets)
        chosen = first_per_class(labels, self.limit)
        pictures = (archive[int(index)][0] for index in chosen)
        return stack_pixels(pictures, len(chosen), self.shape), labels[chosen]


@register("cifar10")
class Cifar10(TorchvisionDataset):
    """CIFAR-10: small colour images of 10 classes, 50,000 for training and 10,000 for testing."""

    source: ClassVar[str] = "Krizhevsky 2009; no explicit licence, published for research"
    classes: ClassVar[int] = 10
    archive: ClassVar[str] = "CIFAR10"
    unpacked: ClassVar[str] = "cifar-10-batches-py"


@register("cifar100")
class Cifar100(TorchvisionDataset):
    """CIFAR-100: small colour images of 100 classes, 50,000 for training and 10,000 for testing."""

    source: ClassVar[str] = "Krizhevsky 2009; no explicit licence, published for research"
    classes: ClassVar[int] = 100
    archive: ClassVar[str] = "CIFAR100"
    unpacked: ClassVar[str] = "cifar-100-python"


@register("mnist")
class Mnist(TorchvisionDataset):
    """MNIST: grey images of handwritten digits, 60,000 for training and 10,000 for testing."""

    source: ClassVar[str] = "LeCun et al. 1998; commonly given as CC BY-SA 3.0"
    classes: ClassVar[int] = 10
    archive: ClassVar[str] = "MNIST"
    unpacked: ClassVar[str] = "MNIST/raw"

    size: int = size_field(28)

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, self.size, self.size)


WINDOW = slice(61, 189)


@register("lfw")
class Lfw(DownloadableDataset):
    """Labeled Faces in the Wild: colour images of people with many images, or an image folder.

    scikit-learn downloads the images, as torchvision no longer does. The central 128 x 128
    pixels of each 250 x 250 image, which contain the face, are cropped and resized; each person's
    images are split 3:1. CPL (section 4.1) reports 106 people with "more than 14" images: 106 have
    at least 14, and 96 more than 14.
    """

    source: ClassVar[str] = "Huang et al. 2007, from figshare; no explicit licence, for research"
    library: ClassVar[str] = "scikit-learn"
    unpacked: ClassVar[str] = "lfw_home/lfw_funneled"

    min_images: int = parameter(
        14, "smallest number of images of a person in the download", source="CPL section 4.1", ge=4
    )

    def read(self, home: Path, *, download: bool) -> Dataset:
        if download and not (home / self.unpacked).is_dir():
            self._download(home)
        folders = [folder for folder in (home / self.unpacked).iterdir() if folder.is_dir()]
        pictures = {folder.name.replace("_", " "): sorted(folder.iterdir()) for folder in folders}
        people = sorted(name for name, own in pictures.items() if len(own) >= self.min_images)
        if not people:
            raise DataError(f"{self}: nobody has that many images in {home / self.unpacked}")
        files = [(path, label) for label, name in enumerate(people) for path in pictures[name]]
        # scikit-learn's order, from which the splits are drawn
        order = np.random.RandomState(42).permutation(len(files))
        faces = stack_pixels((self._face(files[i][0]) for i in order), len(files), self.shape)
        labels = np.array([files[i][1] for i in order])
        splits = stratified(faces, labels)
        kept = [first_per_class(split_labels, self.limit) for _, split_labels in splits]
        train, test = ((split[0][k], split[1][k]) for split, k in zip(splits, kept, strict=True))
        return join_splits(train, test, people)

    def _download(self, home: Path) -> None:
        """Download to a folder of its own: scikit-learn unpickles what is in its folder.

        It also reads the images of the person with most (530), as small ones; they are not used.
        """
        with TemporaryDirectory(dir=home) as fresh:
            sklearn.datasets.fetch_lfw_people(data_home=fresh, min_faces_per_person=530, resize=0.1)
            (home / self.unpacked).parent.mkdir(exist_ok=True)
            (Path(fresh) / self.unpacked).rename(home / self.unpacked)

    def _face(self, path: Path) -> Image.Image:
        with Image.open(path) as image:
            box = (WINDOW.start, WINDOW.start, WINDOW.stop, WINDOW.stop)
            return image.crop(box).resize((self.size, self.size))
