"""UCI Adult (Census Income)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from typing_extensions import override

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import DataError
from gleak.core.registry import register
from gleak.data.base import DatasetSpec, Modality
from gleak.data.splits import join_splits
from gleak.data.tables import encode_table

if TYPE_CHECKING:
    from pandas import DataFrame, Series

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
FEATURES = 108


@register("adult")
class Adult(DatasetSpec):
    """Census records, and whether the income is above 50,000 dollars a year.

    Six columns are scaled, eight become one-hot groups in which "unknown" (``?``) is a category
    of its own: 108 features.
    """

    reads_data_dir: ClassVar[bool] = True

    modality: ClassVar[Modality] = "tabular"
    source: ClassVar[str] = "UCI, Becker and Kohavi 1996, CC BY 4.0"

    @property
    def shape(self) -> tuple[int, ...]:
        """6 continuous features and 9 + 16 + 7 + 15 + 6 + 5 + 2 + 42 of one-hot groups."""
        return (FEATURES,)

    @property
    def classes(self) -> int:
        """Above 50,000 dollars or not."""
        return 2

    @override
    def check_data(self, data_dir: Path) -> None:
        """Both files must be there."""
        super().check_data(data_dir)
        for path in self._files(data_dir):
            if not path.is_file():
                raise DataError(f"{path}: no such file; {_advice(path.parent)}")

    def _files(self, data_dir: Path) -> list[Path]:
        """Of the train and the test split."""
        return [data_dir / "adult" / name for name in ("adult.data", "adult.test")]

    def load(self, data_dir: Path, seed: int) -> Dataset:
        """The files ``adult.data`` (train) and ``adult.test`` in ``<data_dir>/adult``.

        Raises:
            DataError: a file is missing, malformed, or does not hold every category.
        """
        self.check_data(data_dir)
        folder = data_dir / "adult"
        train, test = map(read_records, self._files(data_dir))
        labels = [_incomes(table.pop("income")) for table in (train, test)]
        features = encode_table(train, test)
        if len(features.names) != FEATURES:
            raise DataError(
                f"{folder}: its categories give {len(features.names)} features instead of "
                f"{FEATURES}; {_advice(folder)}"
            )
        splits = (features.train, labels[0]), (features.test, labels[1])
        return join_splits(*splits, INCOMES, **features.facts())


def read_records(path: Path) -> DataFrame:
    """One of the two files: a row for each record, ``|`` beginning a comment, no header.

    Raises:
        DataError: missing, or not 15 columns of the kinds known.
    """
    from pandas import read_csv

    kinds = dict(enumerate(COLUMNS.values()))
    try:
        table = read_csv(path, header=None, skipinitialspace=True, comment="|", dtype=kinds)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); {_advice(path.parent)}") from error
    if table.shape[1] != len(COLUMNS) or table.isna().any(axis=None):
        raise DataError(
            f"{path}: every row must hold {len(COLUMNS)} values; {_advice(path.parent)}"
        )
    table.columns = list(COLUMNS)
    table["income"] = table["income"].str.removesuffix(".")
    if not table["income"].isin(INCOMES).all():
        raise DataError(f"{path}: incomes must be one of {INCOMES}; {_advice(path.parent)}")
    return table


def _incomes(column: Series) -> np.ndarray:
    return np.asarray(column == INCOMES[1]).astype(np.int64)


def _advice(folder: Path) -> str:
    return (
        f"put adult.data and adult.test from https://archive.ics.uci.edu/dataset/2/adult into "
        f"{folder}, or set data_dir in config.yaml (or --config data_dir=...) to the folder that "
        f"holds adult/"
    )
