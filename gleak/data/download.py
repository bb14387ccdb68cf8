"""Image folders that a library can download when they are not there."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.data.base import DatasetSpec
from gleak.data.image_folder import ImageFolderDataset, advice
from gleak.data.pixels import stack_pixels
from gleak.data.splits import Split, first_of_each, join_splits
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
