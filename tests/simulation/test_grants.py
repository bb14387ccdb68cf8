from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.private import Private
from gleak.artifacts.update import GRANTS
from gleak.simulation import grants as module
from gleak.simulation.grants import AUXILIARY, free_positions, make_grants

SHARED = {"mean_input", "auxiliary_inputs", "auxiliary_labels"}


def private_of(dataset: Dataset, split: str, indices: list[list[int]]) -> Private:
    """Victims that hold the samples at these positions."""
    positions = np.array(indices)
    return Private(
        spec="a/cell",
        inputs=dataset.samples(split, positions),
        labels=dataset.labels(split)[positions],
        indices=positions,
    )


def statistics_of(private: Private) -> np.ndarray:
    """Statistics of victims in one batch normalisation layer of two channels."""
    return np.linspace(0, 1, 4 * len(private.labels), dtype=np.float32).reshape(-1, 2, 2)


def granted(
    dataset: Dataset, split: str, indices: list[list[int]], seed: int = 1
) -> dict[str, np.ndarray]:
    """The values of every grant by its name."""
    private = private_of(dataset, split, indices)
    free = free_positions(dataset, private, split)
    grants = make_grants(dataset, private, statistics_of(private), free, seed)
    return {grant.grant: grant.values for grant in grants}


def numbered(labels: list[int]) -> Dataset:
    """Training rows whose one value is their position, and six rows to test with."""
    rows = np.arange(len(labels), dtype=np.float32)[:, None] / 100
    return Dataset(
        modality="tabular",
        train_inputs=rows,
        train_labels=np.array(labels, dtype=int),
        test_inputs=np.full((6, 1), 0.999, dtype=np.float32),
        test_labels=np.arange(6) % 3,
        class_names=np.array(list("abc")),
    )


def positions(samples: np.ndarray) -> np.ndarray:
    """Where the rows of `numbered` stand in their split."""
    return np.round(samples[..., 0] * 100).astype(int)


def test_every_grant_is_made_and_what_all_share_is_stored_once(images: Dataset) -> None:
    private = private_of(images, "test", [[0, 1], [2, 3]])
    made = make_grants(images, private, statistics_of(private), np.arange(40), 1)
    assert sorted(grant.grant for grant in made) == sorted(GRANTS)
    for grant in made:
        grant.validate()
        assert grant.spec == "a/cell"
        assert grant.shared == (grant.grant in SHARED)
        assert len(grant.values) == (1 if grant.shared else 2)
        if grant.values.dtype.kind == "f":
            assert grant.values.dtype == np.float32
            assert ((grant.values >= 0) & (grant.values <= 1)).all()


def test_labels_ascend_embeddings_come_shortest_first_and_statistics_are_granted_as_they_are(
    images: Dataset,
) -> None:
    embeddings = np.array([[[3, 4], [0, 1], [-2, 0]], [[0, 0], [1, 1], [-9, 0]]], np.float32)
    private = replace(private_of(images, "test", [[3, 1, 2], [5, 4, 0]]), embeddings=embeddings)
    every = make_grants(images, private, statistics_of(private), np.arange(40), 1)
    made = {grant.grant: grant.values for grant in every}
    expected = [[[0, 1], [-2, 0], [3, 4]], [[0, 0], [1, 1], [-9, 0]]]
    assert made["embeddings"].tolist() == expected
    assert made["labels"].tolist() == [[1, 2, 3], [0, 0, 1]]
    assert np.array_equal(made["batch_norm_statistics"], statistics_of(private))


def test_the_mean_is_that_of_all_training_samples(
    images: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_AT_ONCE", 7)
    (mean,) = granted(images, "train", [[0, 1]])["mean_input"]
    np.testing.assert_allclose(mean, (images.train_inputs / 255).mean(0), rtol=1e-6)


def test_a_class_sample_is_of_the_same_class_and_no_victims_own() -> None:
    """None is drawn twice as long as there are others."""
    dataset = numbered([2, 2, 2, 0, 0, 0, 1, 1, 1])
    held = [[0, 3, 6], [7, 4, 1]]
    assert positions(granted(dataset, "train", held)["class_sample"]).tolist() == [[5, 8, 2]] * 2
    (of_test,) = positions(granted(dataset, "test", [[2, 1, 0]])["class_sample"])
    assert dataset.train_labels[of_test].tolist() == [0, 1, 2]
    for indices, most in (([0, 3, 0], 1), ([0, 3, 0, 3, 0], 2)):
        (drawn,) = positions(granted(numbered([0, 0, 0, 1]), "test", [indices])["class_sample"])
        assert np.bincount(drawn).max() == most


@pytest.mark.parametrize(
    ("labels", "split", "held"),
    [([], "test", [[0, 1]]), ([0, 1, 1], "test", [[0, 1], [1, 2]]), ([0, 1, 1], "train", [[0, 1]])],
    ids=["no training split", "a class is not in it", "its only sample is the victim's"],
)
def test_without_a_sample_of_every_class_there_is_none_to_grant(
    labels: list[int], split: str, held: list[list[int]]
) -> None:
    assert granted(numbered(labels), split, held)["class_sample"].shape == (len(held), 0, 1)


def test_a_victims_class_sample_does_not_depend_on_the_others(images: Dataset) -> None:
    few = granted(images, "test", [[0, 1], [2, 3]])["class_sample"]
    more = granted(images, "test", [[0, 1], [2, 3], [4, 5]])["class_sample"]
    assert np.array_equal(few, more[:2])
    alike = granted(images, "test", [[0, 1], [0, 1]])["class_sample"]
    assert not np.array_equal(alike[0], alike[1])


@given(
    labels=st.lists(st.integers(0, 2), min_size=1, max_size=100),
    held=st.sets(st.integers(0, 99), min_size=1, max_size=5),
    seed=st.integers(0, 9),
)
def test_auxiliary_samples_are_of_all_classes_alike_and_no_victims_own(
    labels: list[int], held: set[int], seed: int
) -> None:
    own = sorted({position % len(labels) for position in held})
    dataset = numbered(labels)
    found = granted(dataset, "train", [own], seed)
    (chosen,) = positions(found["auxiliary_inputs"])
    assert len(set(chosen)) == len(chosen) == min(AUXILIARY, len(labels) - len(own))
    assert not set(chosen) & set(own)
    assert np.array_equal(found["auxiliary_labels"][0], dataset.train_labels[chosen])
    left = np.bincount(np.delete(dataset.train_labels, own), minlength=3)
    taken = np.bincount(found["auxiliary_labels"][0], minlength=3)
    assert all(taken[c] == left[c] or taken[c] >= taken.max() - 1 for c in range(3))


def test_without_training_samples_the_mean_is_mid_grey_and_nothing_is_auxiliary() -> None:
    found = granted(numbered([]), "test", [[0, 1]])
    assert found["mean_input"].tolist() == [[0.5]]
    assert found["auxiliary_inputs"].shape == (1, 0, 1)
    assert found["auxiliary_labels"].shape == (1, 0)


@pytest.mark.parametrize("split", ["train", "test"])
def test_copies_of_a_victims_sample_are_not_granted(split: str) -> None:
    """A folder of images may have one image in both splits, or twice."""
    dataset = numbered([0, 1, 2, 0, 1, 2])
    dataset.train_inputs[3] = dataset.train_inputs[0]
    dataset.test_inputs[0] = dataset.train_inputs[0]
    private = private_of(dataset, split, [[0]])
    assert free_positions(dataset, private, split).tolist() == [1, 2, 4, 5]
