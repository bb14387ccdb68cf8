from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from skimage.data import lfw_subset
from sklearn.datasets import load_digits

from gleak.core.errors import DataError
from gleak.data import bundled
from gleak.data.bundled import (
    PHOTOGRAPHS,
    Digits,
    Faces,
    Photograph,
    Photos,
    central_squares,
    draw_crops,
    open_bundled,
)


def test_a_file_that_is_not_carried_is_named() -> None:
    unicorn = open_bundled("skimage/data/unicorn.png")
    with pytest.raises(DataError, match=r"skimage/data/unicorn\.png.*install"), unicorn:
        pass


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


def test_faces_are_the_first_hundred_patches() -> None:
    dataset = Faces(size=25).load(Path("/nonexistent"), seed=0)
    inputs = np.concatenate([dataset.samples("train"), dataset.samples("test")])[:, 0]
    labels = np.concatenate([dataset.labels("train"), dataset.labels("test")])
    distances = np.abs(inputs[:, None] - lfw_subset()[None]).max(axis=(2, 3))
    assert sorted(distances.argmin(axis=1)) == list(range(200))
    assert distances.min(axis=1).max() <= 0.5 / 255 + 1e-6
    assert np.array_equal(distances.argmin(axis=1) < 100, labels == 1)
    assert dataset.class_names[1] == "face"


NOWHERE = Path("/nonexistent")


@pytest.mark.parametrize("photograph", PHOTOGRAPHS.values(), ids=PHOTOGRAPHS)
def test_parts_of_a_photograph_have_no_pixel_in_common(photograph: Photograph) -> None:
    width, height = photograph.read().size
    claimed = np.zeros((height, width), dtype=int)
    for left, top, right, bottom in (photograph.train, photograph.test):
        assert 0 <= left < right <= width and 0 <= top < bottom <= height
        claimed[top:bottom, left:right] += 1
    assert claimed.max() == 1


def test_each_split_is_drawn_from_its_own_part(
    ramp: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Photograph, "read", lambda photograph: ramp)
    halves = Photograph("ramp", train=(0, 0, 128, 120), test=(128, 0, 256, 120))
    monkeypatch.setattr(bundled, "PHOTOGRAPHS", {"ramp": halves})
    dataset = Photos(size=16, crops=40).load(NOWHERE, seed=1)
    assert dataset.train_inputs.max() < 128 <= dataset.test_inputs.min()
    assert dataset.train_inputs.min() < 10 and dataset.test_inputs.max() > 245


def test_a_central_square_is_the_middle_of_the_photograph() -> None:
    photograph = np.asarray(PHOTOGRAPHS["coffee"].read())
    assert photograph.shape == (400, 600, 3)
    middle = photograph[:, 100:500].transpose(2, 0, 1)
    assert np.array_equal(central_squares(["cat", "coffee"], 400)[1], middle)


@settings(deadline=None, max_examples=30)
@given(
    width=st.integers(8, 60), height=st.integers(8, 60), size=st.integers(4, 8), seed=st.integers(0)
)
def test_crops_stay_inside_and_do_not_depend_on_their_number(
    width: int, height: int, size: int, seed: int
) -> None:
    noise = np.random.default_rng(seed).integers(50, 200, (height, width, 3), dtype=np.uint8)
    region = Image.fromarray(noise)
    few, many = (draw_crops(region, size, n, np.random.default_rng(seed)) for n in (2, 5))
    assert many.shape == (5, 3, size, size)
    assert np.array_equal(few, many[:2])
    assert many.min() >= noise.min() and many.max() <= noise.max()


def test_about_half_of_the_crops_are_mirrored(ramp: Image.Image) -> None:
    crops = draw_crops(ramp, 8, 40, np.random.default_rng(0)).astype(int)
    mirrored = crops[:, 0, 0, 0] > crops[:, 0, 0, -1]
    assert 10 < mirrored.sum() < 30


def test_seeds_classes_and_splits_have_their_own_crops(
    ramp: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Photograph, "part", lambda photograph, split: ramp)
    crops = [
        inputs
        for seed in (0, 1)
        for dataset in [Photos(size=8, crops=6).load(NOWHERE, seed)]
        for split in (dataset.train_inputs, dataset.test_inputs)
        for inputs in split.reshape(10, -1)
    ]
    assert len({inputs.tobytes() for inputs in crops}) == 40


def test_crops_of_mere_sky_are_drawn_again() -> None:
    night = np.zeros((64, 64, 3), dtype=np.uint8)
    night[:, 48:] = np.random.default_rng(0).integers(0, 256, (64, 16, 3))
    crops = draw_crops(Image.fromarray(night), 16, 20, np.random.default_rng(0))
    assert (crops.std(axis=(2, 3)).max(axis=1) > 0).all()
