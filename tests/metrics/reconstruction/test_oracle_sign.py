from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gleak.metrics.base import Comparison, MetricSpec
from gleak.metrics.reconstruction.feature_similarity import Lpips
from gleak.metrics.reconstruction.pixel_similarity import (
    LpipsOracleSign,
    Mse,
    OracleSignMetric,
    Psnr,
    PsnrOracleSign,
    with_oracle_signs,
)

Make = Callable[..., Comparison]
BOTH = [PsnrOracleSign(), LpipsOracleSign()]
each = pytest.mark.parametrize("metric", BOTH, ids=str)


def compared(make: Make, truth: np.ndarray, found: np.ndarray, other: np.ndarray) -> Comparison:
    """A comparison whose attack found images under two signs; the estimate beside is no matter."""
    whole = make(truth, truth)
    assert whole.reconstruction is not None
    labels = np.zeros(found.shape[:2], dtype=int)
    both = replace(
        whole.reconstruction, inputs=found, mirrored=other, labels=labels, averaged_count=None
    )
    return replace(whole, reconstruction=both)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1), samples=st.integers(1, 3))
def test_no_other_assignment_and_signs_have_a_smaller_error(
    make_comparison: Make, seed: int, samples: int
):
    truth, found, other = np.random.default_rng(seed).random((3, 2, samples, 1, 2, 2))
    signed = with_oracle_signs(compared(make_comparison, truth, found, other))
    for victim, errors in enumerate(Mse().measure(signed)):
        signs = (found[victim], other[victim])
        totals = [
            sum(
                ((signs[sign][place] - true) ** 2).mean()
                for true, place, sign in zip(truth[victim], order, chosen, strict=True)
            )
            for order in permutations(range(samples))
            for chosen in product((0, 1), repeat=samples)
        ]
        assert errors.sum() == pytest.approx(min(totals))


@each
@pytest.mark.usefixtures("random_weights")
def test_the_value_is_the_plain_one_of_the_better_sign(
    make_comparison: Make, metric: OracleSignMetric
):
    truth, noise = np.random.default_rng(0).random((2, 2, 3, 3, 16, 16))
    near = 0.7 * truth + 0.3 * noise
    wrong = np.array([[True, False, True], [False, False, True]])[..., None, None, None]
    found, other = np.where(wrong, 1 - near, near), np.where(wrong, near, 1 - near)
    order = [2, 0, 1]
    comparison = compared(make_comparison, truth, found[:, order], other[:, order])
    plain = metric.plain.measure(make_comparison(truth, near))
    np.testing.assert_allclose(metric.measure(comparison), plain, rtol=1e-5)


def test_where_both_signs_are_equally_far_the_attacks_own_stays(make_comparison: Make):
    truth = np.full((1, 1, 1, 2, 2), 0.5)
    found = truth + np.array([[0.25, 0], [0, 0]])
    signed = with_oracle_signs(compared(make_comparison, truth, found, 1 - found))
    np.testing.assert_array_equal(signed.estimate, found)


@each
def test_unassigned_images_are_unmatched(make_comparison: Make, metric: OracleSignMetric):
    truth = np.random.default_rng(0).random((1, 3, 1, 4, 4))
    found = 1 - truth[:, [2, 1]]
    comparison = compared(make_comparison, truth, found, 1 - found)
    assert metric.matched(comparison).tolist() == [[False, True, True]]


def test_images_that_an_attack_did_not_find_have_no_sign(make_comparison: Make):
    truth = np.random.default_rng(0).random((1, 3, 1, 4, 4))
    comparison = compared(make_comparison, truth, truth, 1 - truth)
    assert comparison.reconstruction is not None
    partly = replace(comparison.reconstruction, averaged_count=np.array([[1, 0, 2]]))
    signed = with_oracle_signs(replace(comparison, reconstruction=partly))
    assert np.isnan(signed.estimate[0, 1]).all()
    np.testing.assert_array_equal(signed.estimate[:, [0, 2]], truth[:, [0, 2]])


@each
def test_applies_to_images_stored_in_both_signs(make_comparison: Make, metric: OracleSignMetric):
    images, rows = np.ones((1, 2, 1, 4, 4)), np.ones((1, 2, 4))
    both = make_comparison(images, images)
    assert metric.applies(both)
    assert both.reconstruction is not None
    without = replace(both.reconstruction, mirrored=None)
    assert not metric.applies(replace(both, reconstruction=without))
    assert not metric.applies(replace(both, reconstruction=None))
    assert not metric.applies(make_comparison(rows, rows))


@pytest.mark.parametrize(("metric", "plain"), [(BOTH[0], Psnr()), (BOTH[1], Lpips())], ids=str)
def test_both_have_the_unit_and_direction_of_the_plain_one(
    metric: OracleSignMetric, plain: MetricSpec
):
    assert metric.plain == plain
    assert (metric.unit, metric.better) == (plain.unit, plain.better)
