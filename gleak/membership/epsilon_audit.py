"""Lower bounds on epsilon by experiment, from scores of a test with and without a canary.

A mechanism is run many times with a canary and many times without it, or with its opposite, and a
test gives each result a score. If the mechanism is (epsilon, delta)-private, no test tells the two
apart better than epsilon allows, so the errors of one bound epsilon from below.

Every bound holds with the stated confidence for one audit: the probability that it exceeds the
true epsilon is at most 1 - confidence. A quarter of the scores chooses the threshold, and the
others, which are independent of it, measure the errors there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gleak.core.errors import ArtifactError, SpecError, nearest
from gleak.core.lazy import scipy

Method = Literal["rates", "gaussian", "one_run"]
FEWEST = 20
"""Scores of each kind below which no audit is made."""
CHOOSING = 4
"""One score of so many chooses the threshold."""
THRESHOLDS = 100
"""Largest number of thresholds among which it is chosen."""
MARGINS = 16
"""Number of margins within which no guess is made, among which one is chosen."""
LARGEST_EPSILON = 500.0


@dataclass(frozen=True)
class EpsilonAudit:
    """A lower bound on the epsilon of a mechanism, and what it rests on.

    Args:
        epsilon: lower bound on epsilon at ``delta``, with ``confidence``; 0: nothing was found.
        mu: lower bound on mu of Gaussian differential privacy; NaN unless ``method`` is gaussian.
        threshold: score from which the test says that the canary took part.
        method: by which the bound was computed (`audit_scores`).
        delta: delta of (epsilon, delta)-privacy.
        confidence: probability with which the bound holds.
        ceiling: epsilon that scores which separate perfectly would have shown: this many scores can
            show no more.
        scores_with: number of scores with the canary.
        scores_without: number of scores without it.
    """

    epsilon: float
    mu: float
    threshold: float
    method: Method
    delta: float
    confidence: float
    ceiling: float
    scores_with: int
    scores_without: int


def audit_scores(
    scores_with: Sequence[float] | np.ndarray,
    scores_without: Sequence[float] | np.ndarray,
    delta: float,
    confidence: float = 0.95,
    method: Method = "rates",
) -> EpsilonAudit:
    """Compute a lower bound on epsilon from the scores of a test.

    - ``rates``: for every (epsilon, delta)-private mechanism. True and false positive rates at one
      threshold are bounded by Clopper and Pearson, each with half of the error, and

          epsilon >= max(log((TPR - delta) / FPR), log((TNR - delta) / FNR))

      (Kairouz et al. 2015, Theorem 2.1; Nasr et al. 2021). Its ``ceiling`` is low, because the rate
      of an event that was never seen in n trials may still be 3 / n.
    - ``gaussian``: for mechanisms whose privacy is that of a Gaussian test: Gaussian noise, also
      composed, without subsampling. By the same bounds on both rates,

          mu >= Phi^-1(TPR) - Phi^-1(FPR)

      (Dong et al. 2022, Definition 2.6; Nasr et al. 2023), and epsilon at delta is that of mu
      (`gaussian_epsilon`). Other mechanisms can have a smaller epsilon at the same errors, and this
      bound is none for them.
    - ``one_run``: for every (epsilon, delta)-private mechanism, with many canaries in one run, each
      included or not by a fair coin of its own (`one_run_p_value`). The canaries of one run may
      depend on each other through the mechanism, which the other two methods do not allow.

    Args:
        scores_with: with the canary; the larger, the more the test believes that it took part.
            Shape (M), in an order that does not depend on the scores.
        scores_without: without it, or with its opposite; Shape (N).
        delta: at least 0 and below 1; above 0 for ``gaussian``.
        confidence: above 0 and below 1.
        method: see above.

    Raises:
        ArtifactError: fewer than 20 scores of a kind, a score that is NaN or infinite, or no list
            of numbers.
        SpecError: delta, confidence or method are out of range.
    """
    check_level(delta, confidence, method)
    groups = [
        _checked(name, values)
        for name, values in (("scores_with", scores_with), ("scores_without", scores_without))
    ]
    present, absent = map(_split, groups)
    found = _COMPUTED[method](present, absent, delta, confidence)
    return EpsilonAudit(
        epsilon=found.epsilon,
        mu=found.mu,
        threshold=found.threshold,
        method=method,
        delta=float(delta),
        confidence=float(confidence),
        ceiling=found.ceiling,
        scores_with=len(groups[0]),
        scores_without=len(groups[1]),
    )


def check_level(delta: float, confidence: float, method: str) -> None:
    """Raise `SpecError` if the level of an audit is out of range."""
    if method not in _COMPUTED:
        raise SpecError(f"audit: unknown method {method!r}; {nearest(method, _COMPUTED)}")
    if not 0 <= _number("delta", delta) < 1:
        raise SpecError(f"audit: delta = {delta}; give one of at least 0 and below 1")
    if delta == 0 and method == "gaussian":
        raise SpecError(
            "audit: delta = 0, at which Gaussian noise has no epsilon; give a delta above 0, such "
            "as 1e-5, or method='rates'"
        )
    if not 0 < _number("confidence", confidence) < 1:
        raise SpecError(f"audit: confidence = {confidence}; give one above 0 and below 1")


def _number(name: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise SpecError(f"audit: {name} = {value!r} is no number") from None


def _checked(name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    try:
        scores = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ArtifactError(f"{name}: expected a list of numbers, one score for each run") from None
    if scores.ndim != 1:
        raise ArtifactError(f"{name}: expected one score for each run, not shape {scores.shape}")
    if len(scores) < FEWEST:
        raise ArtifactError(
            f"{name}: {len(scores)} scores, which bound no epsilon; give at least {FEWEST}, better "
            "1,000"
        )
    bad = ~np.isfinite(scores)
    if bad.any():
        raise ArtifactError(
            f"{name}: {int(bad.sum())} of {len(scores)} scores are NaN or infinite, the first at "
            f"position {int(bad.argmax())}; give a score for every run"
        )
    return scores


@dataclass(frozen=True)
class _Scores:
    """Scores of one kind, those that choose the test and those that measure it."""

    choosing: np.ndarray
    measuring: np.ndarray


def _split(scores: np.ndarray) -> _Scores:
    chooses = np.arange(len(scores)) % CHOOSING == 0
    return _Scores(scores[chooses], scores[~chooses])


@dataclass(frozen=True)
class _Finding:
    """Numbers of an audit; see `EpsilonAudit`."""

    epsilon: float
    mu: float
    threshold: float
    ceiling: float


def rates_epsilon(
    false_positives: np.ndarray, false_negatives: np.ndarray, delta: float
) -> np.ndarray:
    """Compute the least epsilon that allows both errors of a test; at least 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = [
            np.maximum(1 - one - delta, 0) / other
            for one, other in (
                (false_negatives, false_positives),
                (false_positives, false_negatives),
            )
        ]
        return np.maximum(np.log(np.maximum(*ratios)), 0)


def rates_mu(false_positives: np.ndarray, false_negatives: np.ndarray) -> np.ndarray:
    """Compute the least mu of Gaussian privacy that allows both errors of a test; at least 0."""
    quantiles = scipy.special.ndtri(false_positives) + scipy.special.ndtri(false_negatives)
    return np.maximum(-quantiles, 0)


def gaussian_trade_off(false_positives: np.ndarray, mu: float) -> np.ndarray:
    """Compute the least rate of false negatives under mu-Gaussian differential privacy.

    Phi(Phi^-1(1 - FPR) - mu) (Dong et al. 2022, Definition 2.6).
    """
    return np.asarray(scipy.special.ndtr(-scipy.special.ndtri(false_positives) - mu))


def private_trade_off(false_positives: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
    """Compute the least rate of false negatives under (epsilon, delta)-differential privacy.

    max(0, 1 - delta - e^epsilon FPR, e^-epsilon (1 - delta - FPR)) (Dong et al. 2022, Proposition
    2.5).
    """
    steep = 1 - delta - np.exp(epsilon) * false_positives
    flat = np.exp(-epsilon) * (1 - delta - false_positives)
    return np.maximum(np.maximum(steep, flat), 0)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Compute the least epsilon at delta of a mu-Gaussian differentially private mechanism.

    It solves delta = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu) (Balle and
    Wang 2018, Theorem 8; Dong et al. 2022, Corollary 2.13). One step of noise of z times the
    sensitivity has mu = 1 / z, and T of them have sqrt(T) / z.
    """

    def excess(epsilon: float) -> float:
        first = scipy.special.ndtr(mu / 2 - epsilon / mu)
        second = math.exp(epsilon + scipy.special.log_ndtr(-mu / 2 - epsilon / mu))
        return float(first - second - delta)

    if mu == 0 or excess(0) <= 0:
        return 0.0
    largest = mu**2 / 2 + 40 * mu
    return float(scipy.optimize.brentq(excess, 0, largest))


class _Bound(ABC):
    """Bound on epsilon by the rates of both errors at one threshold."""

    @abstractmethod
    def values(self, positives: np.ndarray, negatives: np.ndarray, delta: float) -> np.ndarray:
        """Compute a number that grows with the bound from upper bounds on both rates."""

    @abstractmethod
    def threshold(
        self, present: _Scores, absent: _Scores, delta: float, confidence: float
    ) -> float:
        """Choose a threshold by the scores that choose."""

    @abstractmethod
    def epsilon_and_mu(self, value: float, delta: float) -> tuple[float, float]:
        """Return the bounds that belong to a value."""

    def compute(
        self, present: _Scores, absent: _Scores, delta: float, confidence: float
    ) -> _Finding:
        threshold = self.threshold(present, absent, delta, confidence)
        sizes = len(absent.measuring), len(present.measuring)
        counts = _errors(present.measuring, absent.measuring, np.array([threshold]))
        none = np.zeros(1), np.zeros(1)
        (epsilon, mu), (ceiling, _) = (
            self.epsilon_and_mu(float(self.values(*rates, delta)[0]), delta)
            for rates in (_upper(counts, sizes, confidence), _upper(none, sizes, confidence))
        )
        return _Finding(epsilon, mu, threshold, ceiling)


class _RatesBound(_Bound):
    def values(self, positives: np.ndarray, negatives: np.ndarray, delta: float) -> np.ndarray:
        return rates_epsilon(positives, negatives, delta)

    def threshold(
        self, present: _Scores, absent: _Scores, delta: float, confidence: float
    ) -> float:
        """Choose the threshold with the largest bound on the scores that choose.

        Their intervals are wider than those of the scores that measure, so that it is none of those
        at which few errors are seen by chance.
        """
        every = np.unique(np.concatenate([present.choosing, absent.choosing]))
        places = np.linspace(0, len(every) - 1, min(len(every), THRESHOLDS)).round().astype(int)
        counts = _errors(present.choosing, absent.choosing, every[places])
        sizes = len(absent.choosing), len(present.choosing)
        values = self.values(*_upper(counts, sizes, confidence), delta)
        return float(every[places][values.argmax()])

    def epsilon_and_mu(self, value: float, delta: float) -> tuple[float, float]:
        return value, math.nan


class _GaussianBound(_Bound):
    def values(self, positives: np.ndarray, negatives: np.ndarray, delta: float) -> np.ndarray:
        return rates_mu(positives, negatives)

    def threshold(
        self, present: _Scores, absent: _Scores, delta: float, confidence: float
    ) -> float:
        """Choose the middle, where both errors of normal scores are equal and best measured."""
        return _middle(present, absent)

    def epsilon_and_mu(self, value: float, delta: float) -> tuple[float, float]:
        return gaussian_epsilon(value, delta), value


def _middle(present: _Scores, absent: _Scores) -> float:
    return float(np.median(present.choosing) + np.median(absent.choosing)) / 2


def _errors(
    present: np.ndarray, absent: np.ndarray, thresholds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Count false positives and false negatives at each threshold; Shape (K) each."""
    positives = len(absent) - np.searchsorted(np.sort(absent), thresholds, "left")
    return positives, np.searchsorted(np.sort(present), thresholds, "left")


def _upper(
    counts: Sequence[np.ndarray], sizes: tuple[int, int], confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the upper bounds of Clopper and Pearson, which hold together with a confidence."""
    level = 1 - (1 - confidence) / 2

    def upper(count: np.ndarray, size: int) -> np.ndarray:
        failures = np.maximum(size - count, 1)
        bound = scipy.special.betaincinv(count + 1, failures, level)
        return np.where(count < size, bound, 1.0)

    first, second = (upper(count, size) for count, size in zip(counts, sizes, strict=True))
    return first, second


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


def _one_run(present: _Scores, absent: _Scores, delta: float, confidence: float) -> _Finding:
    """Guess the coins of those canaries whose scores are far enough from the middle."""
    chosen = np.concatenate([present.choosing, absent.choosing])
    middle = _middle(present, absent)
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
    return _Finding(epsilon, math.nan, middle + margin, ceiling)


_COMPUTED: dict[str, Callable[[_Scores, _Scores, float, float], _Finding]] = {
    "rates": _RatesBound().compute,
    "gaussian": _GaussianBound().compute,
    "one_run": _one_run,
}
