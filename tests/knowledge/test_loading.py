from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Knowledge
from gleak.artifacts.private import Private
from gleak.core.errors import IncompatibleError
from gleak.knowledge.loading import check_disjoint, fingerprints

PIXELS = npst.arrays(np.uint8, (4, 1, 2, 2), elements=st.integers(0, 2))


@given(PIXELS)
def test_equal_images_have_equal_fingerprints_and_no_others(images: np.ndarray) -> None:
    prints = fingerprints(images)
    for one, other in product(range(4), repeat=2):
        assert (prints[one] == prints[other]) == np.array_equal(images[one], images[other])


@given(npst.arrays(np.uint8, (3, 2, 4, 4)))
def test_intensities_have_the_fingerprints_of_their_pixels(images: np.ndarray) -> None:
    intensities = images.astype(np.float32) / np.float32(255)
    assert np.array_equal(fingerprints(intensities), fingerprints(images))


@pytest.fixture
def knowledge(images: Dataset, tmp_path: Path) -> Path:
    """Knowledge trained on the train split of the tiny images."""
    path = tmp_path / "codec" / "knowledge.h5"
    Knowledge(
        dataset="tiny",
        class_names=np.array([], object),
        input_shape=np.array(images.shape),
        parameters={"weight": np.zeros(3, np.float32)},
        buffers={},
        loss_step=np.zeros(0, int),
        losses={},
        fingerprints=fingerprints(images.train_inputs),
    ).write(path)
    return path


def test_a_victim_among_the_public_samples_is_refused(images: Dataset, knowledge: Path) -> None:
    inputs = images.samples("test", slice(6)).reshape(3, 2, *images.shape)
    labels = np.zeros((3, 2), int)
    victims = Private(inputs=inputs, labels=labels, indices=labels)
    check_disjoint(victims, "private.h5", [knowledge])
    mixed = np.array(victims.inputs)
    mixed[1, 1] = images.samples("train")[7]
    with pytest.raises(IncompatibleError) as caught:
        check_disjoint(replace(victims, inputs=mixed), "there/private.h5", [knowledge])
    assert str(caught.value).startswith(
        f"{knowledge}: trained on tiny, which contains 1 of the 6 samples in there/private.h5, "
        "first of victim 1"
    )
