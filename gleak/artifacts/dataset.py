"""``dataset.h5``: samples and labels of one dataset, in two splits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import h5py
import numpy as np

from gleak.artifacts.reading import member, open_checked
from gleak.artifacts.schema import array, attribute
from gleak.artifacts.store import Artifact

SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class Dataset(Artifact):
    """Train and test split of labelled samples.

    Images are stored as 8-bit intensities and read through `samples`. Tabular columns are scaled
    to [0, 1]; the columns of a one-hot group are adjacent.

    Args:
        train_inputs: Shape (M, C, H, W) uint8 for images, (M, F) float32 for tables.
        train_labels: Shape (M), class indices.
        test_inputs: like ``train_inputs``.
        test_labels: like ``train_labels``.
        class_names: one name per class.
        modality: "image" or "tabular".
        feature_names: one name per column of a table.
        feature_groups: one group number per column of a table; the columns of a one-hot group share
            a number, a continuous column has its own.
    """

    format: ClassVar[str] = "gleak/dataset"

    modality: str = attribute("image")
    train_inputs: np.ndarray = array(
        "train_sample feature...", "intensity or scaled value", "number"
    )
    train_labels: np.ndarray = array("train_sample", "class index", "int")
    test_inputs: np.ndarray = array("test_sample feature...", "intensity or scaled value", "number")
    test_labels: np.ndarray = array("test_sample", "class index", "int")
    class_names: np.ndarray = array("class", "name", "text")
    feature_names: np.ndarray | None = array("feature", "name", "text", optional=True)
    feature_groups: np.ndarray | None = array("feature", "group number", "int", optional=True)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample: (C, H, W) or (F,)."""
        return tuple(self.train_inputs.shape[1:])

    def labels(self, split: str) -> np.ndarray:
        """Return the labels of the split "train" or "test"; Shape (M)."""
        return np.asarray(getattr(self, f"{split}_labels"))

    def samples(self, split: str, indices: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return samples of a split as float32 in [0, 1]; Shape (len(indices), *shape)."""
        chosen = getattr(self, f"{split}_inputs")[indices]
        scale = 255.0 if chosen.dtype == np.uint8 else 1.0
        return np.asarray(chosen, dtype=np.float32) / np.float32(scale)


def read_sizes(files: Iterable[Path]) -> dict[str, dict[str, int]]:
    """Return the number of samples in each split of prepared datasets, without reading these.

    Args:
        files: in folders with the names of the datasets, by which the result is.
    """
    sizes = {}
    for path in files:
        with open_checked(path, Dataset.format, Dataset.version) as file:
            labels = {split: member(file, f"{split}_labels", h5py.Dataset) for split in SPLITS}
            sizes[path.parent.name] = {split: len(values) for split, values in labels.items()}
    return sizes
