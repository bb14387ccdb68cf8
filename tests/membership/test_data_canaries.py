from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.membership.canaries import Subject
from gleak.membership.data_canaries import DataCanaries, _sender
from gleak.membership.mislabelled_canaries import MislabelledCanaries
from gleak.membership.trade_off import gaussian_epsilon
from gleak.runtime.seeding import derived_seed

CLASSES = 4


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (200, 1, 4, 4)).astype(np.uint8)
    labels = np.arange(200) % CLASSES
    return Dataset(
        train_inputs=pixels,
        train_labels=labels,
        test_inputs=pixels,
        test_labels=labels,
        class_names=np.array([str(label) for label in range(CLASSES)]),
    )


@pytest.fixture
def network() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, CLASSES)).eval()


@pytest.fixture
def subject(dataset: Dataset, network: torch.nn.Module):
    def subject(defense: str, client: str = "fedsgd+batch_size=3") -> Subject:
        return Subject(parse("client", client), parse("defense", defense), dataset, network)

    return subject


@pytest.mark.parametrize("audit", [DataCanaries, MislabelledCanaries])
def test_without_noise_every_canary_is_told(subject, audit: type):
    found = audit(trials=100).run(subject("none"), 0)
    np.testing.assert_array_equal(found.score > 0, found.present)
    assert 30 < found.present.sum() < 70


@pytest.mark.parametrize(("defense", "std"), [("dp+sigma=1", 1), ("gaussian+std=0.1", 0.1)])
def test_scores_are_likelihood_ratios_of_gaussian_noise(subject, defense: str, std: float):
    """Times the variance: of mean |D|^2 / 2 on either side, and deviation |D| std."""
    given, audit = subject(defense), DataCanaries(trials=100)
    found = audit.test(given, 0)
    send = _sender(given, derived_seed(0, "runs"))
    batches = audit._neighbours(given, 0)
    first, second = (send(given.defense.noiseless, one, slice(0, 100)).updates for one in batches)
    lengths = np.linalg.norm(first - second, axis=(1, 2))
    signed = np.where(found.present, found.score, -found.score)
    assert scipy.stats.kstest((signed - lengths**2 / 2) / (lengths * std), "norm").pvalue > 1e-3


def test_the_bound_is_below_that_of_the_worst_case(subject):
    audit = DataCanaries(trials=100).audit(subject("dp+sigma=1"), 0)
    assert 0 <= audit.epsilon < gaussian_epsilon(2.0, audit.delta)


def test_neighbours_differ_in_the_first_sample_alone(subject):
    """And in its label, which is wrong for mislabelled canaries."""
    given = subject("none")
    present, absent = MislabelledCanaries(trials=100)._neighbours(given, 0)
    np.testing.assert_array_equal(present[0][:, 1:], absent[0][:, 1:])
    np.testing.assert_array_equal(present[1][:, 1:], absent[1][:, 1:])
    assert (present[0][:, 0] != absent[0][:, 0]).any(axis=(1, 2, 3)).all()
    pixels = given.dataset.samples("test", np.arange(200)[None])[0]
    for sample, label in zip(present[0][:, 0], present[1][:, 0], strict=True):
        (place,) = np.flatnonzero((pixels == sample).all(axis=(1, 2, 3)))
        assert label != given.dataset.labels("test")[place]


def test_a_canary_that_no_step_takes_is_no_trial(subject):
    client = "fedavg+batch_size=3+mini_batch=2+drop_last=true+order=shuffled"
    found = DataCanaries(trials=100).run(subject("none", client), 0)
    np.testing.assert_array_equal(found.score > 0, found.present)
    assert 50 < len(found.score) < 85


def test_several_rounds_are_refused(subject):
    with pytest.raises(IncompatibleError, match="observed for several rounds"):
        DataCanaries().audit(subject("dp", "epochs+batch_size=4"), 0)


def test_real_clients_are_refused():
    client, defense = parse("client", "captured+capture=one"), parse("defense", "none")
    with pytest.raises(IncompatibleError, match="audit simulated clients"):
        DataCanaries().check_defense(client, defense)


def test_a_split_without_a_sample_for_the_canary_is_refused(subject):
    with pytest.raises(IncompatibleError, match="more than the 199 samples"):
        DataCanaries().audit(subject("none", "fedsgd+batch_size=200"), 0)
