from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.errors import SpecError
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.claims import (
    Baseline,
    Bound,
    ClaimedRange,
    Closeness,
    Expectation,
    Order,
    Trend,
    sort_of,
    written_claims,
)

COMMON = {"id": "a", "grid": "g", "metric": "mse", "claim": "c", "source": "s"}
TWO = {"along": "attack", "order": ["cpl", "dlg"]}
THREE = {"along": "defense", "order": ["a", "b", "c"]}
OTHERS = {"along": "defense", "order": ["a", "b"]}


def make(**fields: Any) -> Expectation:
    return sort_of(fields)(**COMMON, **fields)


def true_of(claim: Expectation, means: list[float]) -> bool:
    """Whether a claim is true of means that are known exactly; never true and false at once."""
    verdicts = []
    for comparison in claim.comparisons:
        minus = 0.0 if comparison.minus is None else comparison.times * means[comparison.minus]
        exact = means[comparison.cell] - minus
        verdicts.append(comparison.contains(exact, exact))
        assert comparison.excludes(exact, exact) is not verdicts[-1]
    return all(verdicts)


@pytest.mark.parametrize(
    ("fields", "means", "true"),
    [
        (TWO, [1.0, 2.0], True),
        (TWO, [2.0, 2.0], False),
        ({**TWO, "margin": 0.5}, [1.0, 1.5], False),
        ({**TWO, "margin": 0.5}, [1.0, 1.75], True),
        ({**TWO, "relation": "<="}, [2.0, 2.0], True),
        ({**TWO, "relation": "<="}, [2.1, 2.0], False),
        ({**TWO, "relation": "<=", "margin": 0.25}, [2.25, 2.0], True),
        ({**TWO, "order": ["a", "b", "c"]}, [1.0, 3.0, 2.0], False),
        ({**THREE, "trend": "falls"}, [3.0, 3.0, 1.0], True),
        ({**THREE, "trend": "falls"}, [3.0, 3.5, 1.0], False),
        ({**THREE, "trend": "falls", "slack": 0.5}, [3.0, 3.5, 1.0], True),
        ({**THREE, "trend": "falls", "margin": 2.0}, [3.0, 2.0, 1.0], False),
        ({**TWO, "trend": "falls"}, [1.0, 1.0], False),
        ({**TWO, "trend": "falls", "slack": 1.0}, [1.0, 1.5], False),
        ({**TWO, "trend": "rises"}, [1.0, 2.0], True),
        ({**THREE, "within": 0.5}, [1.0, 1.5, 0.5], True),
        ({**THREE, "within": 0.5}, [1.0, 1.25, 0.25], False),
        ({**TWO, "factor": 2.5}, [2.0, 5.0], False),
        ({**TWO, "factor": 2.5}, [2.0, 5.5], True),
        ({**TWO, "factor": 0.5}, [2.0, 1.5], True),
        ({**OTHERS, "above": "none"}, [1.0, 2.0, 1.5], True),
        ({**OTHERS, "above": "none"}, [1.0, 2.0, 0.5], False),
        ({**OTHERS, "above": "none", "margin": 0.5}, [1.0, 2.0, 1.5], False),
        ({**OTHERS, "below": "none", "margin": 0.25}, [1.0, 0.5, 0.0], True),
        ({**OTHERS, "below": "none", "margin": 0.25}, [1.0, 0.5, 0.75], False),
        ({**OTHERS, "below": "none", "margin": 0.25, "relation": "<="}, [1.0, 1.25, 0.0], True),
        ({**OTHERS, "below": "none", "margin": 0.25, "relation": "<="}, [1.0, 1.5, 0.0], False),
        ({**OTHERS, "above": "none", "margin": 0.25, "relation": "<="}, [1.0, 0.75, 9.0], True),
        ({"at_most": 0.2}, [0.2], True),
        ({"at_most": 0.2}, [0.3], False),
        ({"at_least": 0.2, "at_most": 0.4}, [0.1], False),
    ],
)
def test_claims_on_means_without_variance(fields: dict[str, Any], means: list[float], true: bool):
    assert true_of(make(**fields), means) is true


@pytest.mark.parametrize(
    ("ends", "contains", "excludes"),
    [
        ((1.0, 2.0), True, False),
        ((0.0, 1.0), False, False),
        ((-1.0, 0.0), False, True),
        ((-1.0, 1.0), False, False),
        ((math.nan, math.nan), False, False),
    ],
)
def test_an_interval_is_within_a_range_outside_or_neither(
    ends: tuple[float, float], contains: bool, excludes: bool
):
    above = ClaimedRange(1, 0, low=0.0, strict=True)
    assert (above.contains(*ends), above.excludes(*ends)) == (contains, excludes)
    below = ClaimedRange(1, 0, high=0.0, strict=True)
    mirrored = (-ends[1], -ends[0])
    assert (below.contains(*mirrored), below.excludes(*mirrored)) == (contains, excludes)


def test_the_ends_of_a_range_belong_to_it_unless_it_is_strict():
    assert ClaimedRange(0, low=0.0, high=1.0).contains(0.0, 1.0)
    assert not ClaimedRange(0, low=0.0, high=1.0, strict=True).contains(0.0, 1.0)
    assert not ClaimedRange(0, low=0.0).excludes(-1.0, 0.0)
    assert ClaimedRange(0, low=0.0, strict=True).excludes(-1.0, 0.0)


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=6, unique=True))
def test_a_rising_trend_is_a_falling_one_backwards(values: list[int]):
    fields = {"along": "defense", "order": [str(value) for value in values]}
    rises, falls = (make(**fields, trend=trend) for trend in ("rises", "falls"))
    means = list(map(float, values))
    assert true_of(rises, means) == true_of(falls, means[::-1]) == true_of(make(**fields), means)


def test_kinds_are_told_by_their_keys():
    assert sort_of(TWO) is Order
    assert sort_of({**TWO, "trend": "falls"}) is Trend
    assert sort_of({**TWO, "within": 0.1}) is Closeness
    assert sort_of({**TWO, "above": "c"}) is sort_of({**TWO, "below": "c"}) is Baseline
    assert sort_of({"at_least": 1}) is Bound
    with pytest.raises(SpecError, match="claims nothing"):
        sort_of({"along": "attack"})


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"metric": "msee", "at_most": 1}, "did you mean 'mse'"),
        ({"where": {"dataset": "mnist"}, "at_most": 1}, "no dataset 'mnist' at any scale"),
        ({"along": "attak", "order": ["cpl", "dlg"]}, "did you mean 'attack'"),
        ({"along": "attack", "order": ["cpl", "idlg"]}, "no attack 'idlg' at any scale"),
    ],
)
def test_what_no_scale_has_is_refused(names: AxisLabels, fields: dict[str, Any], fault: str):
    expectation = sort_of(fields)(**{**COMMON, **fields})
    with pytest.raises(SpecError, match=fault):
        expectation.check([names, names])


def test_a_baseline_is_above_or_below():
    with pytest.raises(ValueError, match="give one baseline"):
        make(**OTHERS, above="none", below="none")


def written(**fields: Any) -> list[dict[str, Any]]:
    return list(written_claims([{"id": "a", **fields}]))


def test_a_claim_on_several_metrics_is_one_for_each_with_its_margin():
    assert written(metric=["psnr", "ssim"]) == [
        {"id": "a_psnr", "metric": "psnr"},
        {"id": "a_ssim", "metric": "ssim"},
    ]
    assert [one["margin"] for one in written(metric={"psnr": 0.5, "ssim": 0.02})] == [0.5, 0.02]


def test_quality_is_a_larger_or_a_smaller_value_by_the_metric():
    psnr, lpips = written(metric={"psnr": 0, "lpips": 0}, ranking=["dlg", "cpl"])
    assert psnr["order"] == lpips["order"][::-1] == ["dlg", "cpl"]
    psnr, lpips = written(metric=["psnr", "lpips"], worse_than="cpl", order=["dlg"])
    assert (psnr["below"], lpips["above"]) == ("cpl", "cpl")
    psnr, lpips = written(metric=["psnr", "lpips"], better_than="blind", order=["cpl"])
    assert (psnr["above"], lpips["below"]) == ("blind", "blind")
    psnr, lpips = written(metric=["psnr", "lpips"], trend="worsens")
    assert (psnr["trend"], lpips["trend"]) == ("falls", "rises")


def test_a_claim_is_a_headline_by_some_of_its_metrics():
    metrics = {"psnr": 0.5, "ssim": 0.02}
    marked = {each["metric"]: each["headline"] for each in written(metric=metrics, headline="psnr")}
    assert marked == {"psnr": True, "ssim": False}
    both = written(metric=metrics, headline=True)
    assert [each["headline"] for each in both] == [True, True]
    with pytest.raises(SpecError, match="'mse' is no metric of the claim: psnr, ssim"):
        written(metric=metrics, headline=["mse"])
