"""Train and test splits of labelled samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gleak.artifacts.dataset import Dataset

Split = tuple[np.ndarray, np.ndarray]
SPLITS = ("train", "test")
TEST_SHARE = 0.25


def stratified(inputs: np.ndarray, labels: np.ndarray) -> tuple[Split, Split]:
    """Split samples 3:1 into train and test, stratified by class and deterministic.

    Args:
        inputs: Shape (M, ...).
        labels: Shape (M), class indices.

    Returns:
        The train and the test split, each in the order of the given samples.
    """
    from sklearn.model_selection import train_test_split

    chosen = train_test_split(
        np.arange(len(labels)), test_size=TEST_SHARE, random_state=0, stratify=labels
    )
    train, test = (np.sort(indices) for indices in chosen)
    return (inputs[train], labels[train]), (inputs[test], labels[test])


def first_per_class(labels: np.ndarray, limit: int | None) -> np.ndarray:
    """Return ascending indices of the first ``limit`` samples per class (None: of all)."""
    if limit is None:
        return np.arange(len(labels))
    chosen = [np.flatnonzero(labels == label)[:limit] for label in np.unique(labels)]
    return np.sort(np.concatenate(chosen))


def join_splits(train: Split, test: Split, class_names: Sequence[str], **facts: Any) -> Dataset:
    """Create a `Dataset` of two splits; ``facts`` are its other fields."""
    return Dataset(
        train_inputs=train[0],
        train_labels=train[1].astype(np.int64),
        test_inputs=test[0],
        test_labels=test[1].astype(np.int64),
        class_names=np.array(class_names, dtype=object),
        **facts,
    )
