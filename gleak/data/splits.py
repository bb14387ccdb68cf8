"""Splits of labelled samples: cutting them, thinning them out, and joining them as a `Dataset`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gleak.artifacts.dataset import Dataset

Split = tuple[np.ndarray, np.ndarray]
SPLITS = ("train", "test")
TEST_SHARE = 0.25


def stratified(inputs: np.ndarray, labels: np.ndarray) -> tuple[Split, Split]:
    """Cut samples 3:1 into train and test, each class alike, always in the same way.

    Args:
        inputs: Shape (M, ...).
        labels: Shape (M), class indices.

    Returns:
        The train and the test split, each in the order the samples were given.
    """
    from sklearn.model_selection import train_test_split

    chosen = train_test_split(
        np.arange(len(labels)), test_size=TEST_SHARE, random_state=0, stratify=labels
    )
    train, test = (np.sort(indices) for indices in chosen)
    return (inputs[train], labels[train]), (inputs[test], labels[test])


def first_of_each(labels: np.ndarray, limit: int | None) -> np.ndarray:
    """Indices of the first ``limit`` samples of each class (None: of all), in ascending order."""
    if limit is None:
        return np.arange(len(labels))
    chosen = [np.flatnonzero(labels == label)[:limit] for label in np.unique(labels)]
    return np.sort(np.concatenate(chosen))


def join_splits(train: Split, test: Split, class_names: Sequence[str], **facts: Any) -> Dataset:
    """A `Dataset` of two splits; ``facts`` are its further fields."""
    return Dataset(
        train_inputs=train[0],
        train_labels=train[1].astype(np.int64),
        test_inputs=test[0],
        test_labels=test[1].astype(np.int64),
        class_names=np.array(class_names, dtype=object),
        **facts,
    )
