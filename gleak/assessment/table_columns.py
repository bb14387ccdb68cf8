"""Columns of a table as its users know them: a one-hot group of features is one column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gleak.artifacts.dataset import Dataset

SEPARATOR = "="
"""Between the name of a column and a category, in the name of a one-hot feature."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: of the column.
        features: positions of its features in a sample.
        categories: of each feature; empty for a number.
    """

    name: str
    features: np.ndarray
    categories: tuple[str, ...]

    def text(self, sample: np.ndarray) -> str:
        """Return a sample's number, or its most likely category.

        Args:
            sample: Shape (F).
        """
        values = sample[self.features]
        return self.categories[int(values.argmax())] if self.categories else f"{values[0]:.3f}"


def columns_of(dataset: Dataset) -> list[Column]:
    """Return the columns of a table, in its order."""
    names, groups = dataset.feature_names, dataset.feature_groups
    assert names is not None and groups is not None
    members = [np.flatnonzero(groups == group) for group in dict.fromkeys(groups)]
    return [_column(features, [str(names[each]) for each in features]) for features in members]


def _column(features: np.ndarray, names: list[str]) -> Column:
    if len(names) == 1:
        return Column(names[0], features, ())
    split = [name.partition(SEPARATOR) for name in names]
    return Column(split[0][0], features, tuple(category for _, _, category in split))
