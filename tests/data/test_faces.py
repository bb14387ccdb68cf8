from __future__ import annotations

from pathlib import Path

import numpy as np
from skimage.data import lfw_subset

from gleak.data.faces import Faces


def test_faces_are_the_first_hundred_patches() -> None:
    dataset = Faces(size=25).load(Path("/nonexistent"), seed=0)
    inputs = np.concatenate([dataset.samples("train"), dataset.samples("test")])[:, 0]
    labels = np.concatenate([dataset.labels("train"), dataset.labels("test")])
    distances = np.abs(inputs[:, None] - lfw_subset()[None]).max(axis=(2, 3))
    assert sorted(distances.argmin(axis=1)) == list(range(200))
    assert distances.min(axis=1).max() <= 0.5 / 255 + 1e-6
    assert np.array_equal(distances.argmin(axis=1) < 100, labels == 1)
    assert dataset.class_names[1] == "face"
