"""Breast Cancer Wisconsin, bundled with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from gleak.artifacts.dataset import Dataset
from gleak.core.registry import register
from gleak.data.base import DatasetSpec, Modality
from gleak.data.splits import join_splits, stratified
from gleak.data.tables import encode_table


@register("breast_cancer")
class BreastCancer(DatasetSpec):
    """30 measurements of cell nuclei in 569 biopsies, malignant or benign."""

    modality: ClassVar[Modality] = "tabular"
    source: ClassVar[str] = "bundled with scikit-learn; UCI, Wolberg et al. 1995, CC BY 4.0"

    @property
    def shape(self) -> tuple[int, ...]:
        """One number for each measurement."""
        return (30,)

    @property
    def classes(self) -> int:
        """Malignant or benign."""
        return 2

    @property
    def sizes(self) -> dict[str, int]:
        """Of 569 biopsies, a quarter is for testing."""
        return {"train": 426, "test": 143}

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """All biopsies; the same for every ``seed``."""
        from pandas import DataFrame
        from sklearn.datasets import load_breast_cancer

        biopsies = load_breast_cancer()
        train, test = stratified(biopsies.data, biopsies.target)
        tables = (DataFrame(rows, columns=biopsies.feature_names) for rows, _ in (train, test))
        features = encode_table(*tables)
        return join_splits(
            (features.train, train[1]),
            (features.test, test[1]),
            [str(name) for name in biopsies.target_names],
            **features.facts(),
        )
