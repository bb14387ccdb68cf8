from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from gleak.data.digits import Digits


def test_at_their_own_size_digits_are_those_of_scikit_learn() -> None:
    dataset = Digits(size=8).load(Path("/nonexistent"), seed=0)
    inputs = np.concatenate([dataset.samples("train"), dataset.samples("test")])[:, 0]
    labels = np.concatenate([dataset.labels("train"), dataset.labels("test")])
    ours = {
        (image * 16).round().astype(int).tobytes(): label
        for image, label in zip(inputs, labels, strict=True)
    }
    original = load_digits()
    theirs = {
        image.astype(int).tobytes(): label
        for image, label in zip(original.images, original.target, strict=True)
    }
    assert ours == theirs
