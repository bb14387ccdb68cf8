from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gleak.data.base import first_per_class, stratified

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=40).map(np.array)


@given(labels=LABELS, limit=st.integers(1, 6))
def test_the_first_of_each_class_are_kept_in_order(labels: np.ndarray, limit: int) -> None:
    kept, seen = [], dict.fromkeys(range(5), 0)
    for index, label in enumerate(labels):
        if seen[label] < limit:
            kept.append(index)
        seen[label] += 1
    assert list(first_per_class(labels, limit)) == kept


@given(labels=LABELS)
def test_without_a_limit_all_are_kept(labels: np.ndarray) -> None:
    assert list(first_per_class(labels, None)) == list(range(len(labels)))


@given(per_class=st.integers(1, 10), classes=st.integers(2, 5))
def test_a_stratified_split_keeps_a_quarter_of_each_class(per_class: int, classes: int) -> None:
    labels = np.tile(np.arange(classes), 4 * per_class)
    inputs = np.arange(len(labels))
    train, test = stratified(inputs, labels)
    assert sorted([*train[0], *test[0]]) == list(inputs)
    assert np.array_equal(labels[test[0]], test[1])
    assert list(np.bincount(test[1])) == [per_class] * classes
