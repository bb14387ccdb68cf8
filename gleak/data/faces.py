"""Faces and other patches bundled with scikit-image."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.registry import register
from gleak.data.base import DatasetSpec
from gleak.data.bundled import open_bundled
from gleak.data.pixels import quantize, side
from gleak.data.splits import join_splits, stratified


@register("faces")
class Faces(DatasetSpec):
    """100 faces and 100 patches of background, 25 x 25 grey pixels, resized."""

    source: ClassVar[str] = "bundled with scikit-image; from LFW, no explicit licence"

    size: int = side(32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Grey."""
        return (1, self.size, self.size)

    @property
    def classes(self) -> int:
        """Face or background."""
        return 2

    @property
    def sizes(self) -> dict[str, int]:
        """Of 200 patches, a quarter is for testing."""
        return {"train": 150, "test": 50}

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """All patches, faces first in the file; the same for every ``seed``.

        Raises:
            DataError: the installed scikit-image does not carry them.
        """
        with open_bundled("skimage/data/lfw_subset.npy") as file:
            patches = np.load(file)
        labels = np.repeat([1, 0], len(patches) // 2)
        train, test = stratified(quantize(patches, self.shape), labels)
        return join_splits(train, test, ["background", "face"])
