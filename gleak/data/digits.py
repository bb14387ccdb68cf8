"""Handwritten digits bundled with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from gleak.artifacts.dataset import Dataset
from gleak.core.registry import register
from gleak.data.base import DatasetSpec
from gleak.data.pixels import quantize, side
from gleak.data.splits import join_splits, stratified

BRIGHTEST = 16


@register("digits")
class Digits(DatasetSpec):
    """Handwritten digits of 8 x 8 grey pixels, resized."""

    source: ClassVar[str] = "bundled with scikit-learn; UCI, Alpaydin and Kaynak 1998, CC BY 4.0"

    size: int = side(16)

    @property
    def shape(self) -> tuple[int, ...]:
        """Grey."""
        return (1, self.size, self.size)

    @property
    def classes(self) -> int:
        """Always 10."""
        return 10

    @property
    def sizes(self) -> dict[str, int]:
        """Of 1,797 digits, a quarter is for testing."""
        return {"train": 1347, "test": 450}

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """All digits; the same for every ``seed``."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        train, test = stratified(quantize(digits.images / BRIGHTEST, self.shape), digits.target)
        return join_splits(train, test, [str(name) for name in digits.target_names])
