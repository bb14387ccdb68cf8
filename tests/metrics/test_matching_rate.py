from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gleak.core.registry import parse
from gleak.metrics.base import Comparison, MetricUnavailable

METRIC = parse("metric", "matching_rate")
MEMBERS = np.array([[[0], [1], [2], [2], [0], [1]]] * 2)


def paired(
    make: Callable[..., Comparison], rounds: list[Any] | None, members: np.ndarray | None = MEMBERS
) -> Comparison:
    """Two victims of three samples each, with these rounds in place of the usual ones."""
    images = np.zeros((2, 3, 1, 8, 8))
    comparison = make(images, images)
    assert comparison.reconstruction is not None
    found = replace(comparison.reconstruction, rounds=None if rounds is None else np.array(rounds))
    return replace(comparison, reconstruction=found, rounds=members)


def test_pairs_with_a_common_sample_are_right(make_comparison: Callable[..., Comparison]) -> None:
    right = [[0, 4], [1, 5], [2, 3]]
    one_right = [[0, 3], [1, 5], [2, 4]]
    assert METRIC.measure(paired(make_comparison, [right, one_right])) == pytest.approx([1, 1 / 3])


def test_updates_of_several_samples_need_one_in_common(
    make_comparison: Callable[..., Comparison],
) -> None:
    members = np.array([[[0, 1], [2, 3], [0, 2], [1, 3]], [[0, 1], [2, 3], [1, 0], [2, 3]]])
    pairs = [[0, 3], [1, 3], [1, 2]]
    assert METRIC.measure(paired(make_comparison, [pairs] * 2, members)) == pytest.approx(
        [1, 1 / 3]
    )


def test_pairs_of_each_epoch_and_the_next_count(make_comparison: Callable[..., Comparison]) -> None:
    members = np.array([[[0], [1], [2]] * 3] * 2)
    chain = [[0, 3, 6], [1, 5, 8], [2, 4, 6]]
    assert METRIC.measure(paired(make_comparison, [chain] * 2, members)) == pytest.approx([0.5] * 2)


def test_it_is_of_attacks_that_pair(make_comparison: Callable[..., Comparison]) -> None:
    assert not METRIC.applies(paired(make_comparison, None))
    with pytest.raises(MetricUnavailable, match="observed for one round"):
        METRIC.measure(paired(make_comparison, [[[0, 1]] * 3] * 2, None))
