"""Photographs read off the gradients of crafted networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.mkor import MKORAttack
from gleak.core.errors import IncompatibleError
from gleak.studies.cell import Cell
from tests.attacks.cases import Make

SMALL = "vgg_small+width=24+hidden=24"
EACH_ONCE = "fedsgd+batch_size=10+victims=2+labels=unique"
REPEATED = "fedsgd+batch_size=10+victims=2"
RAW = "+loss=nll_raw"
NAIVE, SUNK = "mkor+hiding=naive", "mkor+sink=12"


Run = Callable[..., tuple[Reconstruction, Private]]


@pytest.fixture
def run(make_photo_case: Make) -> Run:
    def attacked(
        client: str = EACH_ONCE + RAW, crafting: str = "mkor", model: str = SMALL
    ) -> tuple[Reconstruction, Private]:
        seen, truth = make_photo_case(MKORAttack(), client, model, crafting=crafting)
        found = MKORAttack().reconstruct(seen)
        found.validate()
        return found, truth

    return attacked


def means_of_classes(truth: Private, labels: np.ndarray) -> np.ndarray:
    """In the place of each label, the mean of the victim's samples that have it."""
    return np.stack(
        [
            np.stack([inputs[own == label].mean(0) for label in some])
            for inputs, own, some in zip(truth.inputs, truth.labels, labels, strict=True)
        ]
    )


def decibels(found: Reconstruction, truth: Private) -> np.ndarray:
    """Of each sample found, with the mean of the true ones of its class; NaN where none was."""
    counts = np.where(found.averaged_count > 0, 1.0, np.nan)
    labels = np.where(found.averaged_count > 0, found.labels, truth.labels)
    errors = ((found.inputs - means_of_classes(truth, labels)) ** 2).mean((2, 3, 4))
    return -10 * np.log10(errors + 1e-10) * counts


def blind(truth: Private) -> float:
    """What the mean of all samples is worth in decibel, which is more than an attacker has."""
    errors = ((truth.inputs - truth.inputs.mean((0, 1))) ** 2).mean((2, 3, 4))
    return float(np.mean(-10 * np.log10(errors)))


@pytest.mark.parametrize(
    ("model", "crafting", "gain"),
    [
        (SMALL, NAIVE, 4),
        (SMALL, "mkor", 4),
        pytest.param(SMALL, "mkor+alpha=-3", 4, marks=pytest.mark.slow),
        pytest.param(f"{SMALL}+norm=batch", "mkor", 4, marks=pytest.mark.slow),
        pytest.param(f"{SMALL}+normalise=imagenet", "mkor", 4, marks=pytest.mark.slow),
        pytest.param(f"{SMALL}+activation=tanh", "mkor+quiet=1", 3, marks=pytest.mark.slow),
        pytest.param(f"{SMALL}+activation=leaky_relu", "mkor", 4, marks=pytest.mark.slow),
        ("lenet5+downsampling=stride", NAIVE, 2),
    ],
)
def test_every_photograph_of_a_batch_comes_out(
    run: Run, model: str, crafting: str, gain: float
) -> None:
    found, truth = run(EACH_ONCE + RAW, crafting, model)
    assert np.array_equal(np.sort(found.labels), np.sort(truth.labels))
    assert (found.averaged_count == 1).all()
    assert found.paired
    assert found.converged.all()
    assert np.mean(decibels(found, truth)) > blind(truth) + gain


@pytest.mark.slow
def test_cross_entropy_shows_all_classes_but_the_sink(run: Run) -> None:
    found, truth = run(EACH_ONCE, SUNK)
    raw, _ = run(EACH_ONCE + RAW, SUNK)
    assert (found.averaged_count == 1).sum(1).tolist() == [9, 9]
    expected = np.nanmean(decibels(raw, truth))
    assert np.nanmean(decibels(found, truth)) == pytest.approx(expected, abs=1)


def test_samples_that_were_not_found_are_grey(run: Run) -> None:
    """Cross-entropy on one sample of each class, without a sink."""
    found, _ = run(EACH_ONCE)
    assert not found.averaged_count.any()
    assert not found.converged.any()
    assert (found.inputs == 0.5).all()
    some, _ = run(EACH_ONCE, SUNK)
    missing = some.averaged_count == 0
    assert missing.any()
    assert (some.inputs[missing] == 0.5).all()


@pytest.mark.parametrize("loss", [RAW, ""])
def test_samples_of_one_class_stand_there_as_their_mean(run: Run, loss: str) -> None:
    """Once for each; batches that lack a class need no sink."""
    found, truth = run(REPEATED + loss)
    for victim, labels in enumerate(truth.labels):
        assert len({*labels}) < len(labels)
        assert np.array_equal(np.sort(found.labels[victim]), np.sort(labels))
        for label, behind in zip(found.labels[victim], found.averaged_count[victim], strict=True):
            assert behind == (labels == label).sum()
            same = found.inputs[victim][found.labels[victim] == label]
            assert (same == same[0]).all()
    assert decibels(found, truth).mean() > blind(truth) + 4


def test_the_more_directions_the_finer_the_image(run: Run) -> None:
    worth = []
    for directions in range(3):
        found, truth = run(crafting=f"{NAIVE}+directions={directions}")
        worth.append(decibels(found, truth).mean())
    assert worth[0] + 1 < worth[1]
    assert worth[1] + 1 < worth[2]


@pytest.mark.parametrize("crafting", [NAIVE, "mkor"])
def test_the_more_noise_the_less_is_read_and_never_is_it_an_error(
    make_photo_case: Make, crafting: str
) -> None:
    spec, random = MKORAttack(), torch.Generator().manual_seed(0)
    seen, truth = make_photo_case(spec, EACH_ONCE + RAW, SMALL, crafting=crafting)
    assert {*seen.update} == {"classifier.0.weight", "classifier.0.bias"}
    errors = []
    for level in (0, 1e-3, 1e-1, 1, 1e8):
        update = {
            name: value + level * value.std() * torch.randn(value.shape, generator=random)
            for name, value in seen.update.items()
        }
        found = spec.reconstruct(replace(seen, update=update))
        found.validate()
        assert found.averaged_count.sum(1).max() <= 100
        errors.append(((found.inputs - expected_or_grey(found, truth)) ** 2).mean())
    assert errors[0] < 1.1 * errors[1] < 1.2 * errors[2]
    assert errors[2] < min(errors[3:])


def test_granted_labels_stand_for_the_counts_that_noise_hides(make_photo_case: Make) -> None:
    told, read = MKORAttack(labels="known"), MKORAttack()
    seen, truth = make_photo_case(told, REPEATED + RAW, SMALL)
    found = [spec.reconstruct(seen) for spec in (told, read)]
    assert np.array_equal(found[0].inputs, found[1].inputs)
    biases = {"classifier.0.bias": 1e-6 * seen.update["classifier.0.bias"]}
    noisy = replace(seen, update=seen.update | biases)
    assert not read.reconstruct(noisy).averaged_count.any()
    assert np.array_equal(told.reconstruct(noisy).labels, np.sort(truth.labels))


LEVELS = {
    "dataset": "photos",
    "model": SMALL,
    "training": "untrained",
    "crafting": "mkor",
    "client": "fedsgd",
    "defense": "none",
    "attack": "mkor+labels=known",
}


def test_granted_labels_do_not_separate_what_cross_entropy_mixes() -> None:
    with pytest.raises(IncompatibleError, match=r"labels=known .* use loss=nll_raw or labels=read"):
        Cell.parse(LEVELS)
    Cell.parse({**LEVELS, "client": "fedsgd" + RAW})


def expected_or_grey(found: Reconstruction, truth: Private) -> np.ndarray:
    """Means of the classes found to be there; mid-grey where a class is not in the batch."""
    present = (truth.labels[:, None, :] == found.labels[:, :, None]).any(2)
    labels = np.where(present, found.labels, truth.labels[:, :1])
    return np.where(present[..., None, None, None], means_of_classes(truth, labels), 0.5)


def test_a_server_without_the_secret_of_this_network_reads_nothing_of_use(
    make_photo_case: Make,
) -> None:
    spec = MKORAttack()
    seen, truth = make_photo_case(spec, EACH_ONCE + RAW, SMALL)
    shuffled = dict(seen.secret)
    shuffled["channel"] = np.roll(shuffled["channel"], 1)
    found = [spec.reconstruct(each) for each in (seen, replace(seen, secret=shuffled))]
    right, wrong = (np.nanmean(decibels(each, truth)) for each in found)
    assert wrong < right - 3


def test_dropped_neurons_hide_few_photographs(run: Run) -> None:
    found, truth = run(model="vgg_small+width=24+hidden=100+dropout=0.2")
    assert (found.averaged_count > 0).mean() > 0.9
    assert np.nanmean(decibels(found, truth)) > blind(truth) + 4


@pytest.mark.parametrize(
    ("crafting", "attack"),
    [("honest", "mkor"), ("fishing", "mkor"), ("honest", "fishing")],
)
def test_parameters_crafted_otherwise_are_refused(crafting: str, attack: str) -> None:
    levels = LEVELS | {"crafting": crafting, "attack": attack}
    fault = f"attack {attack} .* these are {crafting}; use crafting {attack}"
    with pytest.raises(IncompatibleError, match=fault):
        Cell.parse(levels)
    Cell.parse({**levels, "crafting": attack})


def test_a_resolution_is_told_to_the_reader(make_photo_case: Make) -> None:
    """Of images that were not enlarged, so that it is wrong: they come out as coarse as it says."""
    seen, truth = make_photo_case(MKORAttack(), EACH_ONCE + RAW, SMALL)
    fine, coarse = (spec.reconstruct(seen) for spec in (MKORAttack(), MKORAttack(resolution=2)))
    assert decibels(coarse, truth).mean() < decibels(fine, truth).mean() - 1
    bends = [np.abs(np.diff(found.inputs, n=2)[..., 5:9]).max() for found in (coarse, fine)]
    assert bends[0] < 0.01 < bends[1]
