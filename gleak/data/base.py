"""What every dataset spec provides."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Literal

from gleak.artifacts.dataset import Dataset
from gleak.spec import Spec

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

    @abstractmethod
    def load(self, data_dir: Path, seed: int) -> Dataset:
        """Read or make the samples.

        Args:
            data_dir: where the user keeps image folders and tables.
            seed: for datasets that draw samples (random crops).

        Raises:
            DataError: nothing usable there; the message says where to put what.
        """
