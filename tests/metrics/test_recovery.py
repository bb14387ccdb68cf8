from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gleak.core.registry import parse
from gleak.metrics.base import Comparison, MetricUnavailable
from gleak.metrics.recovery import Categories, SamplesFound, SuccessContent, SuccessLabels
from tests.metrics.subjects import changed

GROUPS = np.array([0, 1, 1, 1, 2, 3, 3])
TRUTH = np.array([[[0.4, 0, 1, 0, 0.9, 1, 0]]])
SAMPLES_FOUND, SAMPLES = SamplesFound(), np.zeros((3, 4, 1, 2, 2))
MATCHING_RATE = parse("metric", "matching_rate")
MEMBERS = np.array([[[0], [1], [2], [2], [0], [1]]] * 2)


def test_success_content_counts_errors_below_the_threshold(make_comparison):
    truth = np.zeros((1, 3, 2))
    estimate = np.sqrt(np.array([0.0, 0.9e-3, 1.1e-3]))[None, :, None] * np.ones(2)
    comparison = make_comparison(truth, estimate)
    assert SuccessContent().measure(comparison).tolist() == [[1, 1, 0]]
    strict = parse("metric", "success_content+threshold=1e-4")
    assert strict.measure(comparison).tolist() == [[1, 0, 0]]


def test_success_labels_counts_equal_labels_and_leaves_the_missing_unmatched(make_comparison):
    inputs = np.zeros((1, 3, 2))
    comparison = changed(
        make_comparison(inputs, inputs),
        labels=np.array([[5, 6, 7]]),
        estimate_labels=np.array([[5, 9, -1]]),
    )
    assert SuccessLabels().measure(comparison).tolist() == [[1, 0, 0]]
    assert SuccessLabels().matched(comparison).tolist() == [[True, True, False]]


@pytest.fixture
def measure(make_comparison):
    """The share of `TRUTH`'s two categories that an estimate recovers."""

    def measure(estimate: list[float], groups: np.ndarray | None = GROUPS) -> float:
        comparison = make_comparison(TRUTH, np.array([[estimate]]))
        return Categories().measure(changed(comparison, feature_groups=groups)).item()

    return measure


@pytest.mark.parametrize(
    ("estimate", "share"),
    [
        ([0.0, 0.1, 0.2, 0.0, 0.0, 0.51, 0.5], 1.0),
        ([0.4, 0.0, 1.0, 0.0, 0.9, 0.2, 0.3], 0.5),
        ([0.4, 1.0, 0.9, 0.0, 0.9, 0.0, 1.0], 0.0),
        ([0.4, 0.0, 1.0, 1.0, 0.9, 1.0, 0.0], 0.5),
        ([0.5] * 7, 0.0),
    ],
    ids=["both", "one", "none", "a tie names no category", "mid-grey"],
)
def test_counts_groups_whose_largest_value_is_the_truths(measure, estimate, share) -> None:
    assert measure(estimate) == share


@pytest.mark.parametrize("groups", [None, np.arange(7)])
def test_a_table_of_numbers_alone_has_no_categories(measure, groups) -> None:
    with pytest.raises(MetricUnavailable, match="no categorical columns"):
        measure([0.5] * 7, groups)


def test_samples_found_are_of_a_label_that_occurs_once_and_no_means(
    make_comparison, make_reconstruction
) -> None:
    """Of an attack that found five images of three victims with four samples each."""
    found = make_reconstruction(
        inputs=np.zeros((3, 5, 1, 2, 2)),
        labels=np.array([[0, 1, 2, 5, 9], [0, 0, 3, 9, 9], [1, 0, 0, 0, 0]]),
        converged=np.ones(3, dtype=bool),
        averaged_count=np.array([[1, 1, 1, 1, 0], [2, 2, 1, 0, 0], [0, 4, 4, 4, 4]]),
    )
    truth = np.array([[0, 1, 2, 2], [0, 1, 2, 3], [0, 0, 0, 0]])
    comparison = changed(make_comparison(SAMPLES, SAMPLES), labels=truth, reconstruction=found)
    assert SAMPLES_FOUND.measure(comparison).tolist() == [1, 0.25, 0]
    paired_comparison = changed(comparison, reconstruction=replace(found, paired=True))
    assert SAMPLES_FOUND.measure(paired_comparison).tolist() == [0.5, 0.25, 0]
    silent = replace(found, averaged_count=None)
    assert not SAMPLES_FOUND.applies(changed(comparison, reconstruction=silent))


def paired(
    make: Callable[..., Comparison], rounds: list[Any] | None, members: np.ndarray | None = MEMBERS
) -> Comparison:
    """Two victims of three samples each, with these rounds in place of the usual ones."""
    images = np.zeros((2, 3, 1, 8, 8))
    comparison = make(images, images)
    assert comparison.reconstruction is not None
    found = replace(comparison.reconstruction, rounds=None if rounds is None else np.array(rounds))
    return changed(comparison, reconstruction=found, rounds=members)


PAIRS = [[0, 3], [1, 3], [1, 2]]
CHAIN = [[0, 3, 6], [1, 5, 8], [2, 4, 6]]


@pytest.mark.parametrize(
    ("rounds", "members", "expected"),
    [
        ([[[0, 4], [1, 5], [2, 3]], [[0, 3], [1, 5], [2, 4]]], MEMBERS, [1, 1 / 3]),
        (
            [PAIRS] * 2,
            [[[0, 1], [2, 3], [0, 2], [1, 3]], [[0, 1], [2, 3], [1, 0], [2, 3]]],
            [1, 1 / 3],
        ),
        ([CHAIN] * 2, [[[0], [1], [2]] * 3] * 2, [0.5, 0.5]),
    ],
    ids=["one sample", "one of several samples", "three epochs"],
)
def test_consecutive_updates_with_a_common_sample_are_right(
    make_comparison: Callable[..., Comparison], rounds: list, members: list, expected: list[float]
) -> None:
    comparison = paired(make_comparison, rounds, np.array(members))
    assert MATCHING_RATE.measure(comparison) == pytest.approx(expected)


def test_it_is_of_attacks_that_pair(make_comparison: Callable[..., Comparison]) -> None:
    assert not MATCHING_RATE.applies(paired(make_comparison, None))
    with pytest.raises(MetricUnavailable, match="observed for one round"):
        MATCHING_RATE.measure(paired(make_comparison, [[[0, 1]] * 3] * 2, None))
