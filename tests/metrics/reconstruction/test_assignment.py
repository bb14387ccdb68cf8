from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gleak.metrics.reconstruction.assignment import (
    UNASSIGNED,
    allowed_pairs,
    assign_allowed,
    assign_labels,
    assign_samples,
    gather,
)

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 4)
label_lists = st.lists(st.integers(0, 4), min_size=1, max_size=8)


def cost(truth: np.ndarray, estimate: np.ndarray) -> float:
    return float(((truth - estimate) ** 2).sum())


@given(seed=seeds, samples=st.integers(1, 6))
def test_a_permuted_batch_is_put_back_in_order(seed: int, samples: int):
    generator = np.random.default_rng(seed)
    truth = generator.random((2, samples, 1, 3, 2))
    shuffles = [generator.permutation(samples) for _ in truth]
    shuffled = np.stack([x[p] for x, p in zip(truth, shuffles, strict=True)])
    order = assign_samples(truth, shuffled)
    np.testing.assert_array_equal(gather(shuffled, order, np.nan), truth)


@given(seed=seeds, samples=sizes, found=sizes)
def test_no_other_assignment_costs_less(seed: int, samples: int, found: int):
    generator = np.random.default_rng(seed)
    truth, estimate = generator.random((samples, 3)), generator.random((found, 3))
    (order,) = assign_samples(truth[None], estimate[None])
    kept = order >= 0
    assert kept.sum() == len(set(order[kept])) == min(samples, found)
    few, many = sorted([truth, estimate], key=len)
    best = min(cost(few, many[list(p)]) for p in permutations(range(len(many)), len(few)))
    assert cost(truth[kept], estimate[order[kept]]) == pytest.approx(best)


@given(truth=label_lists, estimate=label_lists)
def test_equal_labels_are_the_intersection_of_the_multisets(truth: list[int], estimate: list[int]):
    true, found = np.array([truth]), np.array([estimate])
    order = assign_labels(true, found)
    equal = (gather(found, order, -1) == true).sum()
    assert equal == (Counter(truth) & Counter(estimate)).total()
    assert (order >= 0).sum() == min(len(truth), len(estimate))


def assignments_of(allowed: np.ndarray) -> list[tuple[int, ...]]:
    """All that are allowed, those that leave samples out among them."""
    samples, found = allowed.shape
    places = [*range(found), *[UNASSIGNED] * samples]
    return [
        chosen
        for chosen in sorted(set(permutations(places, samples)))
        if all(place == UNASSIGNED or allowed[row, place] for row, place in enumerate(chosen))
    ]


def rank(costs: np.ndarray, chosen: Sequence[int]) -> tuple[int, float]:
    """Number of unassigned samples, and the cost of the assigned ones."""
    pairs = [(row, place) for row, place in enumerate(chosen) if place != UNASSIGNED]
    return len(chosen) - len(pairs), float(sum(costs[pair] for pair in pairs))


@given(data=st.data(), samples=st.integers(1, 3), found=st.integers(1, 3))
def test_as_many_as_may_be_are_assigned_at_the_least_cost(
    data: st.DataObject, samples: int, found: int
):
    allowed = data.draw(npst.arrays(bool, (samples, found)))
    costs = data.draw(npst.arrays(float, (samples, found), elements=st.floats(0, 1e6, width=32)))
    order = assign_allowed(costs, allowed).tolist()
    possible = assignments_of(allowed)
    assert tuple(order) in possible
    assert rank(costs, order) == pytest.approx(min(rank(costs, chosen) for chosen in possible))


def test_samples_that_were_not_found_and_other_labels_are_not_allowed():
    labels, found = np.array([[4, 1, 4]]), np.array([[4, 4, 1, 7]])
    counts = np.array([[1, 0, 2, 1]])
    silent = SimpleNamespace(labels=found, averaged_count=None, paired=False)
    assert allowed_pairs(labels, silent).tolist() == [[[True] * 4] * 3]
    partly = SimpleNamespace(labels=found, averaged_count=counts, paired=False)
    assert allowed_pairs(labels, partly).tolist() == [[[True, False, True, True]] * 3]
    paired = SimpleNamespace(labels=found, averaged_count=counts, paired=True)
    of_four, of_one = [True, False, False, False], [False, False, True, False]
    assert allowed_pairs(labels, paired).tolist() == [[of_four, of_one, of_four]]


def test_what_is_missing_is_filled():
    assert assign_samples(np.zeros((2, 3, 4)), np.zeros((2, 0, 4))).tolist() == [[-1] * 3] * 2
    values = np.array([[10, 20], [30, 40]])
    order = np.array([[1, -1, 0], [-1, 0, 1]])
    assert gather(values, order, -1).tolist() == [[20, -1, 10], [-1, 30, 40]]
