from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from gleak.core.errors import ArtifactError, SpecError
from gleak.membership.epsilon_audit import audit_scores
from gleak.membership.one_run_bound import one_run_epsilon, one_run_p_value
from gleak.membership.trade_off import (
    gaussian_epsilon,
    gaussian_trade_off,
    private_trade_off,
    rates_epsilon,
    rates_mu,
)
from gleak.metrics.epsilon import EpsilonPrv

DELTA = 1e-5
REPEATS = 100
TRIALS = 10_000


def normal_scores(random: np.random.Generator, mu: float, trials: int = TRIALS):
    """Scores of the best test of Gaussian noise, with and without the canary."""
    return random.normal(mu, 1, trials), random.normal(0, 1, trials)


def bounds(mu: float, method: str, trials: int = TRIALS) -> np.ndarray:
    random = np.random.default_rng(0)
    return np.array(
        [
            audit_scores(*normal_scores(random, mu, trials), DELTA, method=method).epsilon
            for _ in range(REPEATS)
        ]
    )


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_gaussian_epsilon_lies_just_below_that_of_the_accountant(mu: float, delta: float):
    stated = EpsilonPrv(delta=delta).guarantee(1 / mu)
    assert stated - 0.03 < gaussian_epsilon(mu, delta) <= stated


def test_no_privacy_is_lost_where_delta_exceeds_the_distance():
    assert gaussian_epsilon(0.0, DELTA) == 0
    assert gaussian_epsilon(0.1, 0.5) == 0


def test_rates_at_the_trade_off_curve_have_its_mu():
    positives = np.array([1e-4, 0.01, 0.3, 0.9])
    np.testing.assert_allclose(rates_mu(positives, gaussian_trade_off(positives, 1.5)), 1.5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_rates_at_the_trade_off_of_an_epsilon_have_that_epsilon(epsilon: float, delta: float):
    positives = np.array([1e-4, 0.01, 0.3, 0.9])
    negatives = private_trade_off(positives, epsilon, delta)
    some = negatives > 0
    found = rates_epsilon(positives[some], negatives[some], delta)
    np.testing.assert_allclose(found, epsilon)


def test_randomised_response_has_the_epsilon_of_its_rates():
    """Truth with probability e / (1 + e) is 1-private; with delta, truth is told more often."""
    wrong = np.array([1 / (1 + math.e)])
    np.testing.assert_allclose(rates_epsilon(wrong, wrong, 0), 1)
    delta = 0.1
    wrong *= 1 - delta
    np.testing.assert_allclose(rates_epsilon(wrong, wrong, delta), 1)


@pytest.mark.parametrize("method", ["rates", "gaussian"])
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_bounds_exceed_the_accountant_in_at_most_a_twentieth_of_audits(method: str, mu: float):
    found = bounds(mu, method)
    assert (found > gaussian_epsilon(mu, DELTA)).mean() <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_bounds_of_one_run_exceed_the_accountant_in_at_most_a_twentieth(mu: float):
    found = bounds(mu, "one_run", 1000)
    assert (found > gaussian_epsilon(mu, DELTA)).mean() <= 0.05


@pytest.mark.parametrize("mu", [1.0, 2.0, 4.0])
def test_the_gaussian_bound_is_tight_at_ten_thousand_trials(mu: float):
    found = bounds(mu, "gaussian")
    assert np.quantile(found, 0.05) >= 0.8 * gaussian_epsilon(mu, DELTA)


def test_rates_hold_for_pure_privacy_where_the_gaussian_bound_does_not():
    """Laplace noise of scale 1 on values at distance 1 is 1-private, with delta 0."""
    random, above, gaussian = np.random.default_rng(0), 0, []
    for _ in range(REPEATS):
        present, absent = (random.laplace(mean, 1, TRIALS) for mean in (1, 0))
        above += audit_scores(present, absent, 0).epsilon > 1
        gaussian.append(audit_scores(present, absent, DELTA, method="gaussian").epsilon)
    assert above <= 0.05 * REPEATS
    assert np.median(gaussian) > 1


def test_confidence_is_what_it_says():
    """At a confidence of one half the bounds may exceed the truth often, and do so sometimes."""
    random, mu = np.random.default_rng(0), 1.0
    audits = [
        audit_scores(*normal_scores(random, mu, 500), DELTA, 0.5, "gaussian") for _ in range(200)
    ]
    share = np.mean([audit.epsilon > gaussian_epsilon(mu, DELTA) for audit in audits])
    assert 0.02 < share <= 0.5


def test_equal_distributions_show_nothing_mostly():
    found = bounds(0.0, "gaussian", 1000)
    assert (found > 0).mean() <= 0.05


@pytest.mark.parametrize("method", ["rates", "gaussian", "one_run"])
def test_perfect_separation_attains_the_ceiling(method: str):
    present, absent = np.linspace(2, 3, 200), np.linspace(0, 1, 200)
    audit = audit_scores(present, absent, DELTA, method=method)
    assert audit.epsilon == audit.ceiling > 3
    assert 1 < audit.threshold <= 2


def test_clopper_and_pearson_of_a_perfect_test():
    """Without an error among n the rate is at most 1 - (error / 2)^(1 / n)."""
    audit = audit_scores(np.ones(400), np.zeros(400), 0)
    highest = 1 - 0.025 ** (1 / 300)
    assert audit.epsilon == pytest.approx(math.log((1 - highest) / highest))


def test_one_run_is_a_binomial_test_without_delta():
    p_value = scipy.stats.binomtest(80, 100, 1 / (1 + math.exp(-1)), alternative="greater").pvalue
    assert one_run_p_value(80, 100, 1000, 1.0, 0) == pytest.approx(p_value)
    epsilon = one_run_epsilon(80, 100, 1000, 0, 0.95)
    low = scipy.stats.binomtest(80, 100, alternative="greater").proportion_ci(0.95).low
    assert epsilon == pytest.approx(math.log(low / (1 - low)), abs=1e-3)


def test_one_run_adds_what_delta_allows():
    """The formula, summed term by term."""
    correct, guesses, canaries, epsilon, delta = 9, 12, 40, 0.7, 1e-3
    law = scipy.stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    largest = max(
        sum(law.pmf(correct - j) for j in range(1, i + 1)) / i for i in range(1, canaries + 1)
    )
    expected = law.sf(correct - 1) + 2 * canaries * delta * largest
    assert one_run_p_value(correct, guesses, canaries, epsilon, delta) == pytest.approx(expected)


def test_one_run_refutes_less_for_larger_epsilon():
    values = [one_run_p_value(950, 1000, 2000, each, DELTA) for each in np.linspace(0, 12, 200)]
    assert (np.diff(values) >= -1e-12).all()


def stated_by_subsampling(rate: float) -> float:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.step(noise_multiplier=1.0, sample_rate=rate)
    return float(accountant.get_epsilon(DELTA))


def test_subsampling_that_does_not_happen_is_caught():
    rate = 0.1
    stated, random = stated_by_subsampling(rate), np.random.default_rng(0)
    right, broken = [], []
    for _ in range(REPEATS):
        present, absent = normal_scores(random, 1.0)
        broken.append(audit_scores(present, absent, DELTA, method="gaussian").epsilon)
        sampled = np.where(random.random(TRIALS) < rate, present, random.normal(0, 1, TRIALS))
        right.append(audit_scores(sampled, absent, DELTA, method="gaussian").epsilon)
    assert np.mean(np.array(broken) > stated) >= 0.95
    assert np.mean(np.array(right) > stated) <= 0.05


def test_noise_of_half_the_size_is_caught():
    found = bounds(2.0, "gaussian", 1000)
    assert (found > EpsilonPrv(delta=DELTA).guarantee(1.0)).mean() >= 0.95


GOOD = np.arange(30.0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"delta": 0, "method": "gaussian"}, SpecError, "at which Gaussian noise has no epsilon"),
        ({"delta": -0.1}, SpecError, "at least 0 and below 1"),
        ({"delta": 1}, SpecError, "at least 0 and below 1"),
        ({"delta": "small"}, SpecError, "'small' is no number"),
        ({"delta": math.nan}, SpecError, "at least 0 and below 1"),
        ({"confidence": 0}, SpecError, "confidence = 0; give one above 0 and below 1"),
        ({"confidence": 1}, SpecError, "confidence = 1"),
        ({"confidence": 95}, SpecError, "confidence = 95"),
        ({"method": "gausian"}, SpecError, "did you mean 'gaussian'"),
        ({"scores_with": GOOD[:19]}, ArtifactError, "scores_with: 19 scores"),
        ({"scores_without": []}, ArtifactError, "scores_without: 0 scores"),
        ({"scores_with": [*GOOD, math.nan]}, ArtifactError, "1 of 31 scores .* at position 30"),
        ({"scores_without": [*GOOD, math.inf]}, ArtifactError, "NaN or infinite"),
        ({"scores_with": GOOD.reshape(5, 6)}, ArtifactError, r"not shape \(5, 6\)"),
        ({"scores_with": ["high"] * 30}, ArtifactError, "a list of numbers"),
    ],
)
def test_bad_input_is_refused(change: dict, error: type[Exception], message: str):
    given = {"scores_with": GOOD, "scores_without": GOOD, "delta": DELTA, **change}
    with pytest.raises(error, match=message):
        audit_scores(**given)
