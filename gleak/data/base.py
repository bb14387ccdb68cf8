"""What every dataset spec provides."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Literal

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.spec import Spec

Modality = Literal["image", "tabular"]


class DatasetSpec(Spec):
    """A dataset: what is known of it before it is read, and how to read it."""

    kind: ClassVar[str] = "dataset"
    modality: ClassVar[Modality] = "image"
    reads_data_dir: ClassVar[bool] = False

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample, (C, H, W) or (F,)."""

    @property
    def classes(self) -> int | None:
        """Number of classes, None where only the files tell."""
        return None

    @property
    def sizes(self) -> dict[str, int] | None:
        """Samples in each split, None where only the files tell."""
        return None

    def classes_in(self, data_dir: Path) -> int | None:
        """Number of classes, counted in a user's folder where only that tells; None: not there."""
        return self.classes

    def check_data(self, data_dir: Path) -> None:
        """Refuse a folder of data that is not there, where the dataset is read from it.

        Args:
            data_dir: where the user keeps image folders and tables; nothing is read or made there.

        Raises:
            DataError: what is missing, and what to do.
        """
        if self.reads_data_dir and not data_dir.is_dir():
            raise DataError(
                f"config: data_dir = {data_dir}: no such folder, and dataset {self} is read from "
                f"it; make it (mkdir -p {data_dir}), or set data_dir in config.yaml (or --config "
                "data_dir=...) to the folder that holds your data"
            )

    @abstractmethod
    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read or make the samples.

        Args:
            data_dir: where the user keeps image folders and tables.
            seed: for datasets that draw samples (random crops).

        Raises:
            DataError: nothing usable there; the message says where to put what.
        """
