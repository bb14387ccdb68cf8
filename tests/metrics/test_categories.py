from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gleak.metrics.base import MetricUnavailable
from gleak.metrics.categories import Categories

GROUPS = np.array([0, 1, 1, 1, 2, 3, 3])
TRUTH = np.array([[[0.4, 0, 1, 0, 0.9, 1, 0]]])


@pytest.fixture
def measure(make_comparison):
    """The share of `TRUTH`'s two categories that an estimate recovers."""

    def measure(estimate: list[float], groups: np.ndarray | None = GROUPS) -> float:
        comparison = make_comparison(TRUTH, np.array([[estimate]]))
        return Categories().measure(replace(comparison, feature_groups=groups)).item()

    return measure


@pytest.mark.parametrize(
    ("estimate", "share"),
    [
        ([0.0, 0.1, 0.2, 0.0, 0.0, 0.51, 0.5], 1.0),
        ([0.4, 0.0, 1.0, 0.0, 0.9, 0.2, 0.3], 0.5),
        ([0.4, 1.0, 0.9, 0.0, 0.9, 0.0, 1.0], 0.0),
        ([0.4, 0.0, 1.0, 1.0, 0.9, 1.0, 0.0], 0.5),
        ([0.5] * 7, 0.0),
    ],
    ids=["both", "one", "none", "a tie names no category", "mid-grey"],
)
def test_counts_groups_whose_largest_value_is_the_truths(measure, estimate, share) -> None:
    assert measure(estimate) == share


def test_columns_of_a_group_need_not_stand_together(make_comparison) -> None:
    truth, estimate = np.array([[[1.0, 1.0, 0.0, 0.0]]]), np.array([[[0.3, 0.3, 0.2, 0.4]]])
    comparison = replace(make_comparison(truth, estimate), feature_groups=np.array([0, 1, 0, 1]))
    assert Categories().measure(comparison).item() == 0.5


@pytest.mark.parametrize("groups", [None, np.arange(7)])
def test_a_table_of_numbers_alone_has_no_categories(measure, groups) -> None:
    with pytest.raises(MetricUnavailable, match="every column is a number"):
        measure([0.5] * 7, groups)
