"""Datasets that a library downloads unless the user has an image folder of them."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.data.image_arrays import quantize, side, stack_pixels
from gleak.data.image_folder import ImageFolderDataset, advice
from gleak.data.splits import Split, first_of_each, join_splits, stratified
from gleak.runtime.torchvision_ops import ensure_operators


class DownloadableDataset(ImageFolderDataset):
    """An image folder ``<data_dir>/<name>``, else a download kept in ``<data_dir>/<library>``."""

    library: ClassVar[str]

    @override
    def check_data(self, data_dir: Path) -> None:
        """What is not in the folder is downloaded."""
        DatasetSpec.check_data(self, data_dir)
        if self.root(data_dir).is_dir():
            super().check_data(data_dir)

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read the image folder, or download.

        Raises:
            DataError: as for any image folder; also where there is none and the download fails, or
                no ``data_dir`` to keep it in.
        """
        self.check_data(data_dir)
        root = self.root(data_dir)
        if root.is_dir():
            return super().load(data_dir, seed)
        home = data_dir / self.library
        try:
            return self._download_alone(home)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"{self.name}: no folder {root}, and the download into {home} failed ({error}); "
                f"{advice(root)}"
            ) from error

    def _download_alone(self, home: Path) -> Dataset:
        """Jobs that run side by side must not write the same download."""
        from filelock import FileLock

        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / f".{self.name}.lock"):
            return self.download(home)

    @abstractmethod
    def download(self, home: Path) -> Dataset:
        """Fetch what is not yet in ``home``, and read it.

        Raises:
            OSError: no network or no place to write.
            RuntimeError: what came is not what was asked for.
        """


class TorchvisionDataset(DownloadableDataset):
    """A dataset that torchvision downloads, with its own train and test split."""

    library: ClassVar[str] = "torchvision"
    archive: ClassVar[str]

    def download(self, home: Path) -> Dataset:
        """Both splits in stored order; ``archive`` names the class in ``torchvision.datasets``."""
        ensure_operators()
        from torchvision import datasets

        read = getattr(datasets, self.archive)
        archives = [read(home, train=train, download=True) for train in (True, False)]
        train, test = (self._split(archive) for archive in archives)
        names = [name.partition(" - ")[0] for name in archives[0].classes]
        return join_splits(train, test, names)

    def _split(self, archive: Any) -> Split:
        labels = np.asarray(archive.targets)
        chosen = first_of_each(labels, self.limit)
        pictures = (archive[int(index)][0] for index in chosen)
        return stack_pixels(pictures, len(chosen), self.shape), labels[chosen]


@register("cifar10")
class Cifar10(TorchvisionDataset):
    """CIFAR-10: small colour photographs of 10 kinds of things, 50,000 and 10,000 in full."""

    source: ClassVar[str] = "Krizhevsky 2009; no explicit licence, published for research"
    archive: ClassVar[str] = "CIFAR10"

    @property
    def classes(self) -> int:
        """Always 10."""
        return 10


@register("cifar100")
class Cifar100(TorchvisionDataset):
    """CIFAR-100: small colour photographs, 100 fine classes, 50,000 and 10,000 in full."""

    source: ClassVar[str] = "Krizhevsky 2009; no explicit licence, published for research"
    archive: ClassVar[str] = "CIFAR100"

    @property
    def classes(self) -> int:
        """Always the 100 fine classes."""
        return 100


@register("mnist")
class Mnist(TorchvisionDataset):
    """MNIST: handwritten digits in grey, 60,000 and 10,000 in full."""

    source: ClassVar[str] = "LeCun et al. 1998; commonly given as CC BY-SA 3.0"
    archive: ClassVar[str] = "MNIST"

    size: int = side(28)

    @property
    def shape(self) -> tuple[int, ...]:
        """Grey stays one channel."""
        return (1, self.size, self.size)

    @property
    def classes(self) -> int:
        """Always 10."""
        return 10


WINDOW = slice(61, 189)


@register("lfw")
class Lfw(DownloadableDataset):
    """Faces of people who have many pictures, in colour; an image folder is taken as it is.

    The download goes through scikit-learn: torchvision no longer offers one. Of each 250 x 250
    picture the central 128 x 128 pixels, which hold the face, are kept and resized; the split is
    3:1 within each person. CPL (section 4.1) speaks of 106 people with "more than 14" images:
    106 have at least 14, and 96 more than 14.
    """

    source: ClassVar[str] = "Huang et al. 2007, from figshare; no explicit licence, for research"
    library: ClassVar[str] = "scikit-learn"

    min_images: int = parameter(
        14, "of the download, people with so many images", source="CPL section 4.1", ge=4
    )

    def download(self, home: Path) -> Dataset:
        """People, by name, and their faces; Shape (M, 3, size, size)."""
        from sklearn.datasets import fetch_lfw_people

        people = fetch_lfw_people(
            data_home=str(home),
            min_faces_per_person=self.min_images,
            color=True,
            slice_=(WINDOW, WINDOW),
            # scikit-learn rounds down: half a pixel more gives the size wanted.
            resize=(self.size + 0.5) / (WINDOW.stop - WINDOW.start),
        )
        train, test = stratified(quantize(people.images, self.shape), people.target)
        return join_splits(self._thin(train), self._thin(test), list(people.target_names))

    def _thin(self, split: Split) -> Split:
        chosen = first_of_each(split[1], self.limit)
        return split[0][chosen], split[1][chosen]
