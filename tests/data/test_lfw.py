from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gleak.data.lfw import Lfw

PEOPLE = {"Ada_Lovelace": 4, "Emmy_Noether": 8, "Rarely_Seen": 3}


@pytest.fixture
def lfw_files(tmp_path: Path) -> Path:
    """A data folder in which scikit-learn finds LFW downloaded: grey faces on white walls."""
    home = tmp_path / "scikit-learn" / "lfw_home"
    home.mkdir(parents=True)
    for name in ("pairs.txt", "pairsDevTrain.txt", "pairsDevTest.txt"):
        (home / name).touch()
    for person, (name, count) in enumerate(PEOPLE.items()):
        folder = home / "lfw_funneled" / name
        folder.mkdir(parents=True)
        for number in range(count):
            picture = np.full((250, 250, 3), 255, dtype=np.uint8)
            picture[61:189, 61:189] = 20 + 60 * person
            Image.fromarray(picture).save(folder / f"{name}_{number:04}.png")
    return tmp_path


@pytest.mark.parametrize("size", [8, 31, 32, 128, 200])
def test_frequent_people_are_cropped_and_split_three_to_one(lfw_files: Path, size: int) -> None:
    dataset = Lfw(min_images=4, size=size).load(lfw_files, seed=0)
    assert list(dataset.class_names) == ["Ada Lovelace", "Emmy Noether"]
    assert list(np.bincount(dataset.train_labels)) == [3, 6]
    assert list(np.bincount(dataset.test_labels)) == [1, 2]
    assert dataset.shape == (3, size, size)
    expected = 20 + 60 * dataset.train_labels[:, None, None, None]
    assert np.array_equal(dataset.train_inputs, np.broadcast_to(expected, (9, 3, size, size)))


def test_a_limit_holds_for_each_split(lfw_files: Path) -> None:
    dataset = Lfw(min_images=4, limit=2).load(lfw_files, seed=0)
    assert list(np.bincount(dataset.train_labels)) == [2, 2]
    assert list(np.bincount(dataset.test_labels)) == [1, 2]
