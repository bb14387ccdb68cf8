"""Bound on epsilon by many canaries in one run."""

from __future__ import annotations

import math

import numpy as np

from gleak.core.lazy import scipy
from gleak.membership.threshold_bound import Finding, Scores, middle_of

MARGINS = 16
"""Number of margins within which no guess is made, among which one is chosen."""
LARGEST_EPSILON = 500.0


def one_run_p_value(
    correct: int, guesses: int, canaries: int, epsilon: float, delta: float
) -> float:
    """Compute a bound on the probability of at least so many correct guesses under privacy.

    Each of m canaries is included by a fair coin of its own, and the test guesses r of the coins.
    If the mechanism is (epsilon, delta)-private for every canary, v or more guesses are correct
    with a probability of at most

        P[W >= v] + 2 m delta max_i P[v > W >= v - i] / i

    for W binomial with r trials of probability 1 / (1 + e^-epsilon) (Steinke et al. 2023, Theorem
    5.2, for guesses that are certain or left out).
    """
    accuracy = 1 / (1 + math.exp(-epsilon))
    chance = float(scipy.stats.binom.sf(correct - 1, guesses, accuracy))
    if delta == 0 or correct == 0:
        return chance
    lower = np.arange(1, correct + 1)
    below = scipy.stats.binom.cdf([correct - 1, *(correct - 1 - lower)], guesses, accuracy)
    return min(1.0, chance + 2 * canaries * delta * float(((below[0] - below[1:]) / lower).max()))


def one_run_epsilon(
    correct: int, guesses: int, canaries: int, delta: float, confidence: float
) -> float:
    """Compute the least epsilon that `one_run_p_value` does not refute; at least 0."""

    def excess(epsilon: float) -> float:
        return one_run_p_value(correct, guesses, canaries, epsilon, delta) - (1 - confidence)

    if guesses == 0 or excess(0) > 0:
        return 0.0
    return float(scipy.optimize.brentq(excess, 0, LARGEST_EPSILON, xtol=1e-4))


def bound_one_run(present: Scores, absent: Scores, delta: float, confidence: float) -> Finding:
    """Guess the coins of those canaries whose scores are far enough from the middle."""
    chosen = np.concatenate([present.choosing, absent.choosing])
    middle = middle_of(present, absent)
    canaries = len(present.measuring) + len(absent.measuring)

    def guess(one: np.ndarray, other: np.ndarray, margin: float) -> tuple[int, int]:
        correct = int((one >= middle + margin).sum() + (other < middle - margin).sum())
        wrong = int((one < middle - margin).sum() + (other >= middle + margin).sum())
        return correct, correct + wrong

    def expected(margin: float) -> float:
        correct, guesses = guess(present.choosing, absent.choosing, margin)
        share = correct / (guesses + 1)
        total = guesses * canaries // len(chosen)
        return one_run_epsilon(math.floor(share * total), total, canaries, delta, confidence)

    shares = np.linspace(0, 1, MARGINS, endpoint=False)[1:]
    margins = [0.0, *np.quantile(np.abs(chosen - middle), shares, method="lower")]
    margin = float(max(margins, key=expected))
    epsilon = one_run_epsilon(
        *guess(present.measuring, absent.measuring, margin), canaries, delta, confidence
    )
    ceiling = one_run_epsilon(canaries, canaries, canaries, delta, confidence)
    return Finding(epsilon, math.nan, middle + margin, ceiling)
