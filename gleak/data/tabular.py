"""Tabular datasets, and their encoding as features in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.lazy import sklearn
from gleak.core.registry import register
from gleak.data.base import DatasetSpec, Modality, join_splits, stratified

if TYPE_CHECKING:
    from pandas import DataFrame, Series


@dataclass(frozen=True)
class TableFeatures:
    """Numeric features of both splits of a table.

    Args:
        train, test: Shape (M, F), float32 in [0, 1].
        names: name of each feature, such as ``age`` or ``sex=Male``.
        groups: index of the table's column of each feature; Shape (F).
    """

    train: np.ndarray
    test: np.ndarray
    names: list[str]
    groups: np.ndarray

    def dataset_fields(self) -> dict[str, Any]:
        names = np.array(self.names, dtype=object)
        return {"modality": "tabular", "feature_names": names, "feature_groups": self.groups}


def encode_table(train: DataFrame, test: DataFrame) -> TableFeatures:
    """Encode columns as features: numeric ones scaled by the train split, others one-hot.

    Test values outside the train range are clipped; categories are those of both splits, sorted,
    with "unknown" for missing ones.

    Raises:
        DataError: a numeric column has missing values; names it.
    """
    blocks = [_encode_column(train[name], test[name]) for name in train.columns]
    groups = [np.full(len(names), number) for number, (names, _, _) in enumerate(blocks)]
    return TableFeatures(
        train=np.concatenate([columns for _, columns, _ in blocks], axis=1, dtype=np.float32),
        test=np.concatenate([columns for _, _, columns in blocks], axis=1, dtype=np.float32),
        names=[name for names, _, _ in blocks for name in names],
        groups=np.concatenate(groups),
    )


def _encode_column(train: Series, test: Series) -> tuple[list[str], np.ndarray, np.ndarray]:
    if train.dtype.kind in "fiu":
        if missing := int(train.isna().sum() + test.isna().sum()):
            raise DataError(
                f"column {train.name}: {missing} missing values; fill them, and add a column that "
                "says so if it matters"
            )
        low, high = train.min(), train.max()
        scaled = [((part - low) / ((high - low) or 1)).clip(0, 1) for part in (train, test)]
        return [str(train.name)], *(part.to_numpy(np.float32)[:, None] for part in scaled)
    texts = [
        part.astype(object).where(part.notna(), "unknown").map(str).to_numpy(object)
        for part in (train, test)
    ]
    categories = np.array(sorted({*texts[0], *texts[1]}), dtype=object)
    hot = [part[:, None] == categories for part in texts]
    return [f"{train.name}={category}" for category in categories], *hot


COLUMNS = {
    "age": float,
    "workclass": str,
    "fnlwgt": float,
    "education": str,
    "education-num": float,
    "marital-status": str,
    "occupation": str,
    "relationship": str,
    "race": str,
    "sex": str,
    "capital-gain": float,
    "capital-loss": float,
    "hours-per-week": float,
    "native-country": str,
    "income": str,
}
INCOMES = ("<=50K", ">50K")
FEATURES = 108  # 6 numeric and 9 + 16 + 7 + 15 + 6 + 5 + 2 + 42 one-hot ones


@register("adult")
class Adult(DatasetSpec):
    """UCI Adult (Census Income): whether a person's income exceeds 50,000 dollars a year.

    Six columns are scaled and eight are one-hot encoded, with "unknown" (``?``) as a category: 108
    features.
    """

    reads_data_dir: ClassVar[bool] = True

    modality: ClassVar[Modality] = "tabular"
    source: ClassVar[str] = "UCI, Becker and Kohavi 1996, CC BY 4.0"
    classes: ClassVar[int] = 2

    @property
    def shape(self) -> tuple[int, ...]:
        return (FEATURES,)

    def check_data(self, data_dir: Path, *, download: bool = False) -> None:
        super().check_data(data_dir, download=download)
        for path in self._files(data_dir):
            if not path.is_file():
                raise DataError(f"{path}: no such file; {_advice(path.parent)}")

    def _files(self, data_dir: Path) -> list[Path]:
        return [data_dir / "adult" / name for name in ("adult.data", "adult.test")]

    def load(self, data_dir: Path, seed: int) -> Dataset:
        self.check_data(data_dir)
        folder = data_dir / "adult"
        train, test = map(read_records, self._files(data_dir))
        labels = [(table.pop("income") == INCOMES[1]).to_numpy() for table in (train, test)]
        features = encode_table(train, test)
        if len(features.names) != FEATURES:
            raise DataError(
                f"{folder}: its categories give {len(features.names)} features, not "
                f"{FEATURES}; {_advice(folder)}"
            )
        splits = (features.train, labels[0]), (features.test, labels[1])
        return join_splits(*splits, INCOMES, **features.dataset_fields())


def read_records(path: Path) -> DataFrame:
    """Read one of the two files: a row per record, comments after ``|``, no header."""
    from pandas import read_csv

    kinds = dict(enumerate(COLUMNS.values()))
    try:
        table = read_csv(path, header=None, skipinitialspace=True, comment="|", dtype=kinds)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); {_advice(path.parent)}") from error
    if table.shape[1] != len(COLUMNS) or table.isna().any(axis=None):
        raise DataError(
            f"{path}: every row must have {len(COLUMNS)} values; {_advice(path.parent)}"
        )
    table.columns = list(COLUMNS)
    table["income"] = table["income"].str.removesuffix(".")
    if not table["income"].isin(INCOMES).all():
        raise DataError(f"{path}: incomes must be one of {INCOMES}; {_advice(path.parent)}")
    return table


def _advice(folder: Path) -> str:
    return (
        f"put adult.data and adult.test from https://archive.ics.uci.edu/dataset/2/adult into "
        f"{folder}, or set data_dir in config.yaml (or --config data_dir=...) to the folder that "
        f"contains adult/"
    )


@register("breast_cancer")
class BreastCancer(DatasetSpec):
    """Breast Cancer Wisconsin: 30 measurements of cell nuclei in 569 biopsies."""

    modality: ClassVar[Modality] = "tabular"
    source: ClassVar[str] = "bundled with scikit-learn; UCI, Wolberg et al. 1995, CC BY 4.0"
    classes: ClassVar[int] = 2

    @property
    def shape(self) -> tuple[int, ...]:
        return (30,)

    @property
    def sizes(self) -> dict[str, int]:
        return {"train": 426, "test": 143}

    def load(self, data_dir: Path, seed: int) -> Dataset:
        biopsies = sklearn.datasets.load_breast_cancer(as_frame=True)
        labels = biopsies.target.to_numpy()
        train, test = stratified(np.arange(len(labels)), labels)
        features = encode_table(biopsies.data.iloc[train[0]], biopsies.data.iloc[test[0]])
        return join_splits(
            (features.train, train[1]),
            (features.test, test[1]),
            [str(name) for name in biopsies.target_names],
            **features.dataset_fields(),
        )
