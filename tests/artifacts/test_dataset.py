from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.dataset import Dataset, read_sizes
from gleak.core.errors import ArtifactError


def test_sizes_are_read_by_the_name_of_the_dataset(tmp_path: Path):
    file = tmp_path / "faces+size=4/dataset.h5"
    Dataset(
        train_inputs=np.zeros((5, 1, 4, 4), np.uint8),
        train_labels=np.zeros(5, int),
        test_inputs=np.zeros((0, 1, 4, 4), np.uint8),
        test_labels=np.zeros(0, int),
        class_names=np.array(["face"]),
    ).write(file)
    assert read_sizes([file]) == {"faces+size=4": {"train": 5, "test": 0}}
    with pytest.raises(ArtifactError, match="no such file"):
        read_sizes([tmp_path / "dataset.h5"])
