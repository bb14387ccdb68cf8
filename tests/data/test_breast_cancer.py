from __future__ import annotations

from pathlib import Path

import numpy as np

from gleak.data.breast_cancer import BreastCancer


def test_columns_are_scaled_by_train_and_have_their_own_groups() -> None:
    dataset = BreastCancer().load(Path("/nonexistent"), seed=0)
    assert np.array_equal(dataset.train_inputs.min(axis=0), np.zeros(30))
    assert np.array_equal(dataset.train_inputs.max(axis=0), np.ones(30))
    assert dataset.test_inputs.dtype == np.float32
    assert list(dataset.feature_groups) == list(range(30))
    assert dataset.feature_names[0] == "mean radius"


def test_larger_nuclei_are_malignant() -> None:
    dataset = BreastCancer().load(Path("/nonexistent"), seed=0)
    radius = dataset.train_inputs[:, list(dataset.feature_names).index("mean radius")]
    malignant = dataset.train_labels == list(dataset.class_names).index("malignant")
    assert radius[malignant].mean() > radius[~malignant].mean() + 0.1
