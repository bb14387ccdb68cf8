from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.private import Private
from gleak.core.registry import parse
from gleak.metrics.base import Comparison, MetricUnavailable
from gleak.metrics.reconstruction.identification import Identified

SHAPE = (1, 6, 6)
VICTIMS = 300
RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Two classes, of 1200 samples in the test split and 40 in each."""
    labels = np.repeat([0, 1], [1200, 40])
    inputs = RANDOM.integers(0, 256, (2, len(labels), *SHAPE), dtype=np.uint8)
    return Dataset(
        train_inputs=inputs[0][-40:],
        train_labels=labels[-40:],
        test_inputs=inputs[1],
        test_labels=labels,
        class_names=np.array(["many", "few"], dtype=object),
    )


def compare(dataset: Dataset, estimate: np.ndarray | None = None, label: int = 0) -> Comparison:
    """Victims with one sample each of a class; without an estimate, that of a perfect attack."""
    positions = np.flatnonzero(dataset.test_labels == label)[:VICTIMS, None]
    truth = dataset.samples("test", positions)
    private = Private(
        seed=3, inputs=truth, labels=np.full(positions.shape, label), indices=positions
    )
    found = truth if estimate is None else np.broadcast_to(estimate, truth.shape)
    return Comparison(private, found, private.labels, None, dataset=dataset)


def test_a_noisy_copy_is_identified_whatever_its_brightness_and_contrast(dataset: Dataset):
    truth = compare(dataset).truth
    noise = RANDOM.normal(0, 0.05, truth.shape)
    assert Identified().measure(compare(dataset, 0.3 + 0.2 * (truth + noise))).all()


@pytest.mark.parametrize(("metric", "chance"), [("identified", 0.01), ("identified+rank=5", 0.05)])
def test_images_that_do_not_depend_on_the_truth_have_the_rate_of_chance(
    dataset: Dataset, metric: str, chance: float
):
    """One image for all victims, as blind has it, and another one for each."""
    for shape in (SHAPE, (VICTIMS, 1, *SHAPE)):
        values = parse("metric", metric).measure(compare(dataset, RANDOM.random(shape)))
        error = (chance * (1 - chance) / VICTIMS) ** 0.5
        assert values.mean() == pytest.approx(chance, abs=3 * error)


def test_a_constant_image_identifies_nothing(dataset: Dataset):
    assert not Identified().measure(compare(dataset, np.full(SHAPE, 0.5))).any()


def test_candidates_are_of_the_class_without_the_victims_and_do_not_depend_on_the_estimate(
    dataset: Dataset,
):
    metric = Identified(candidates=10)
    perfect, other = compare(dataset), compare(dataset, RANDOM.random(SHAPE))
    members = {sample.tobytes() for sample in dataset.samples("test", slice(0, 1200))}
    sets = []
    for (at, drawn), (_, again) in zip(metric.others(perfect), metric.others(other), strict=True):
        images = {image.tobytes() for image in drawn}
        assert len(images) == 9
        assert images <= members - {perfect.truth[at].tobytes()}
        np.testing.assert_array_equal(drawn, again)
        sets.append(frozenset(images))
    assert len(set(sets)) == VICTIMS


def test_samples_that_were_rescaled_are_no_candidates_beside_themselves(dataset: Dataset):
    """A captured sample was normalised for the network, and back, with rounding."""
    few = compare(dataset, label=1)
    rounded = few.private.inputs * np.float32(1 + 1e-6)
    assert not np.array_equal(rounded, few.private.inputs)
    captured = replace(few, private=replace(few.private, inputs=rounded))
    assert {len(others) for _, others in Identified().others(captured)} == {79}


def test_a_small_class_is_used_whole_and_the_chance_follows(dataset: Dataset):
    few = compare(dataset, label=1)
    assert {len(others) for _, others in Identified().others(few)} == {79}
    assert parse("metric", "identified_by_chance").measure(few) == pytest.approx(1 / 80)
    fifth = parse("metric", "identified_by_chance+candidates=10+rank=5")
    assert fifth.measure(compare(dataset)) == pytest.approx(0.5)


def test_a_sample_alone_in_its_class_cannot_be_identified(dataset: Dataset):
    few = compare(dataset, label=1)
    alone = replace(dataset, test_labels=np.zeros_like(dataset.test_labels))
    alone = replace(alone, train_labels=np.zeros_like(dataset.train_labels))
    with pytest.raises(MetricUnavailable, match="class 1 has no sample besides the victim's"):
        Identified().measure(replace(few, dataset=alone))


def test_without_a_dataset_or_labels_it_is_not_defined(dataset: Dataset):
    known = compare(dataset)
    assert Identified().applies(known)
    assert not Identified().applies(replace(known, dataset=None))
    unknown = replace(known.private, labels=np.full((VICTIMS, 1), -1))
    assert not Identified().applies(replace(known, private=unknown))
