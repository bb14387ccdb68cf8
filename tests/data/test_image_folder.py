from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gleak.core.errors import DataError
from gleak.core.registry import parse
from gleak.data.image_folder import ImagenetSample

PETS = "folder+size=4+folder=pets"


def read(data_dir: Path, text: str = PETS):
    return parse("dataset", text).load(data_dir, seed=0)


def test_classes_are_sorted_and_files_come_in_order(pets: Path) -> None:
    dataset = read(pets)
    assert list(dataset.class_names) == ["cat", "dog"]
    assert list(dataset.train_labels) == [0, 0, 0, 1, 1, 1]
    assert list(dataset.train_inputs[:, 0, 0, 0]) == [0, 10, 20, 100, 110, 120]
    assert list(dataset.test_inputs[:, 0, 0, 0]) == [1, 11, 101, 111]
    assert dataset.train_inputs.dtype == np.uint8


def test_grey_stays_one_channel_where_asked(tmp_path: Path, write_image) -> None:
    for split in ("train", "test"):
        write_image(tmp_path / "images" / split / "only" / "a.png", 77)
    assert (read(tmp_path, "folder+size=4+channels=1").train_inputs == 77).all()
    assert read(tmp_path, "folder+size=4+channels=1").shape == (1, 4, 4)
    assert read(tmp_path, "folder+size=4").shape == (3, 4, 4)


def test_files_in_deeper_folders_count_and_others_do_not(pets: Path, write_image) -> None:
    cats = pets / "pets" / "train" / "cat"
    write_image(cats / "images" / "deep.PNG", (5, 5, 5))
    write_image(cats / "._hidden.png", (5, 5, 5))
    (cats / "boxes.txt").write_text("0 0 4 4")
    (pets / "pets" / "names.csv").write_text("cat,dog")
    (pets / "pets" / "train" / ".cache").mkdir()
    assert len(read(pets).train_labels) == 7


@pytest.mark.parametrize("missing", ["train", "test"])
def test_a_missing_split_is_empty(pets: Path, missing: str) -> None:
    shutil.rmtree(pets / "pets" / missing)
    dataset = read(pets)
    dataset.validate()
    assert getattr(dataset, f"{missing}_inputs").shape == (0, 3, 4, 4)
    assert dataset.shape == (3, 4, 4) and dataset.classes == 2
    assert len(dataset.train_labels) + len(dataset.test_labels) > 0


def test_a_missing_folder_is_told_with_its_layout(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        ImagenetSample().load(tmp_path, seed=0)
    message = str(error.value)
    assert f"{tmp_path}/imagenet_sample/test/<class>/" in message
    assert "data_dir in config.yaml" in message and "--config data_dir=" in message


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        ("rm -r test/*", "pets/test: no class folders"),
        ("mkdir train/owl test/owl", "train/owl: no images"),
        ("mkdir test/owl && cp test/cat/0.png test/owl", r"pets/train and .*differ in 1 .*\(owl\)"),
        ("echo rotten > test/dog/1.png", r"test/dog/1\.png"),
    ],
)
def test_faulty_folders_are_named(pets: Path, spoil: str, fault: str) -> None:
    subprocess.run(spoil, shell=True, check=True, cwd=pets / "pets")
    with pytest.raises(DataError, match=fault):
        read(pets)


def test_a_dataset_of_known_classes_refuses_fewer(pets: Path) -> None:
    (pets / "pets").rename(pets / "tiny_imagenet")
    with pytest.raises(DataError, match=r"2 class folders, but .*200.*folder=tiny_imagenet"):
        read(pets, "tiny_imagenet")


def test_classes_and_samples_are_counted_without_reading_an_image(pets: Path) -> None:
    dataset = parse("dataset", PETS)
    assert dataset.classes_in(pets) == 2
    assert dataset.size_in(pets, "train") == len(read(pets).train_labels)
    dataset.check_data(pets)
    shutil.rmtree(pets / "pets/train")
    assert dataset.classes_in(pets) == 2
    shutil.rmtree(pets / "pets/test")
    assert dataset.classes_in(pets) is None
    assert dataset.size_in(pets, "test") is None
    with pytest.raises(DataError, match="put images into"):
        dataset.check_data(pets)
    assert parse("dataset", "digits").classes_in(pets) == 10
    parse("dataset", "digits").check_data(pets / "nowhere")
