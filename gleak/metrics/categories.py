"""Whether categories of a table were recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("categories")
class Categories(MetricSpec):
    """Share of a row's one-hot groups whose largest value stands where the truth has it.

    A group in which several values are the largest names no category and is not recovered.
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"tabular"})
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), in [0, 1].

        Raises:
            MetricUnavailable: no column of the table is one of a one-hot group.
        """
        groups = _one_hot_groups(comparison.feature_groups)
        if not groups:
            raise MetricUnavailable("the table has no categories: every column is a number")
        recovered = [
            _largest(comparison.truth[..., group]) == _largest(comparison.estimate[..., group])
            for group in groups
        ]
        return np.asarray(np.mean([same.all(axis=-1) for same in recovered], axis=0))


def _one_hot_groups(numbers: np.ndarray | None) -> list[np.ndarray]:
    """For each group of several columns, their positions."""
    if numbers is None:
        return []
    columns = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
    return [group for group in columns if len(group) > 1]


def _largest(values: np.ndarray) -> np.ndarray:
    """Which values are the largest of their row; of a row with NaN, none."""
    return np.asarray(values == values.max(axis=-1, keepdims=True))
