from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gleak.metrics.samples_found import SamplesFound

METRIC, SAMPLES = SamplesFound(), np.zeros((3, 4, 1, 2, 2))


@pytest.fixture
def comparison(make_comparison, make_reconstruction):
    """An attack that found five images of three victims with four samples each."""
    behind = np.array([[1, 1, 1, 1, 0], [2, 2, 1, 0, 0], [0, 4, 4, 4, 4]])
    found = make_reconstruction(
        inputs=np.zeros((3, 5, 1, 2, 2)),
        labels=np.zeros((3, 5), dtype=int),
        converged=np.ones(3, dtype=bool),
        averaged_count=behind,
    )
    return replace(make_comparison(SAMPLES, SAMPLES), reconstruction=found)


def test_means_of_several_samples_are_not_samples(comparison):
    assert METRIC.measure(comparison).tolist() == [1, 0.25, 0]


def test_labels_that_the_batch_does_not_hold_once_are_not_found(comparison):
    truth = np.array([[0, 1, 2, 2], [0, 1, 2, 3], [0, 0, 0, 0]])
    labels = np.array([[0, 1, 2, 5, 9], [0, 0, 3, 9, 9], [1, 0, 0, 0, 0]])
    found = replace(comparison.reconstruction, labels=labels, paired=True)
    measured = METRIC.measure(replace(comparison, truth_labels=truth, reconstruction=found))
    assert measured.tolist() == [0.5, 0.25, 0]


def test_applies_where_an_attack_says_what_it_found(comparison):
    assert METRIC.applies(comparison)
    silent = replace(comparison.reconstruction, averaged_count=None)
    assert not METRIC.applies(replace(comparison, reconstruction=silent))
    assert not METRIC.applies(replace(comparison, reconstruction=None))
