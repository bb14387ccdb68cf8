from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, norm
from sklearn.metrics import roc_auc_score, roc_curve

from gleak.core.registry import parse
from gleak.metrics.base import metrics_of
from gleak.metrics.discrimination import RankedCandidates

SHARES = (0.01, 0.05, 0.2)


@pytest.fixture
def ranked() -> RankedCandidates:
    """Three victims with ten members among two hundred candidates; some evidence is equal."""
    random = np.random.default_rng(0)
    member = np.zeros((3, 200), dtype=bool)
    member[:, :10] = True
    return RankedCandidates(np.round(random.normal(size=(3, 200)) + member, 1), member)


def test_auc_and_p_value_are_those_of_the_libraries(ranked: RankedCandidates) -> None:
    areas = np.concatenate(parse("metric", "auc").measure(ranked))
    values = np.concatenate(parse("metric", "p_value").measure(ranked))
    for victim in range(3):
        evidence, member = ranked.evidence[victim], ranked.member[victim]
        assert areas[victim] == pytest.approx(roc_auc_score(member, evidence))
        test = mannwhitneyu(evidence[member], evidence[~member], alternative="greater")
        assert values[victim] == pytest.approx(test.pvalue)
        assert areas[victim] == pytest.approx(test.statistic / (10 * 190))


@pytest.mark.parametrize("share", SHARES)
def test_the_rate_is_that_of_the_curve(share: float, ranked: RankedCandidates) -> None:
    """The largest of scikit-learn's at no more false positives."""
    found = np.concatenate(parse("metric", f"tpr+fpr={share:g}").measure(ranked))
    curve = roc_curve(ranked.member.ravel(), ranked.evidence.ravel(), drop_intermediate=False)
    assert found.mean() == pytest.approx(curve[1][curve[0] <= share].max())
    assert len(found) == ranked.member.sum()


@given(st.integers(1, 50), st.sampled_from([0.001, 0.01, 0.1, 0.5]), st.integers(0, 99))
def test_no_more_others_are_above_the_threshold_than_allowed(
    others: int, share: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    member = np.arange(others + 5) < 5
    evidence = random.integers(0, 9, others + 5).astype(float)
    (found,) = parse("metric", f"tpr+fpr={share}").measure(
        RankedCandidates(evidence[None], member[None])
    )
    least = evidence[member][found == 1].min(initial=np.inf)
    assert (evidence[~member] >= least).sum() <= share * others


@pytest.mark.parametrize("metric", metrics_of("membership"), ids=str)
def test_without_information_nothing_is_told(metric: object) -> None:
    member = np.arange(40) < 5
    ranked = RankedCandidates(np.zeros((2, 40)), np.tile(member, (2, 1)))
    values = np.concatenate(metric.measure(ranked))
    expected = {"auc": 0.5, "tpr": 0.0, "d_prime": 0.0}.get(metric.name)
    assert values.min() >= 0.5 if expected is None else (values == expected).all()
    assert len(values) == (10 if metric.per == "sample" else 2)


@pytest.mark.parametrize("metric", metrics_of("membership"), ids=str)
def test_perfect_evidence_has_the_best_value(metric: object) -> None:
    member = np.arange(40) < 5
    values = np.concatenate(metric.measure(RankedCandidates(member[None] * 1.0, member[None])))
    best = np.inf if metric.name == "d_prime" else 1
    assert values.max() < 1e-5 if metric.better == "lower" else (values == best).all()


@pytest.mark.parametrize("members", [1, 40])
def test_d_prime_is_the_shift_of_normal_evidence_however_many_members(members: int) -> None:
    random = np.random.default_rng(0)
    member = np.tile(np.arange(400) < members, (300, 1))
    ranked = RankedCandidates(random.normal(size=member.shape) + 2.5 * member, member)
    found = np.concatenate(parse("metric", "d_prime").measure(ranked))
    assert found.shape == (300,)
    assert found.mean() == pytest.approx(2.5, abs=4 / np.sqrt(300 * members))
    areas = np.concatenate(parse("metric", "auc").measure(ranked))
    assert areas.mean() == pytest.approx(norm.cdf(2.5 / np.sqrt(2)), abs=0.01)


@pytest.mark.parametrize("evidence", [1.0, -1.0])
def test_d_prime_is_infinite_if_only_members_differ(evidence: float) -> None:
    ranked = RankedCandidates(np.array([[evidence, 0, 0]]), np.array([[True, False, False]]))
    (found,) = parse("metric", "d_prime").measure(ranked)
    assert found == evidence * np.inf
