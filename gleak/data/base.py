"""Base class of dataset specs."""

from __future__ import annotations

import shlex
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Literal

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.spec import Spec

Modality = Literal["image", "tabular"]


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
