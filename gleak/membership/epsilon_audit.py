"""Lower bounds on epsilon by experiment, from scores of a test with and without a canary.

A mechanism is run many times with a canary and many times without it, or with its opposite, and a
test gives each result a score. If the mechanism is (epsilon, delta)-private, no test tells the two
apart better than epsilon allows, so the errors of one bound epsilon from below.

Every bound holds with the stated confidence for one audit: the probability that it exceeds the
true epsilon is at most 1 - confidence. A quarter of the scores chooses the threshold, and the
others, which are independent of it, measure the errors there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gleak.core.errors import ArtifactError, SpecError, nearest
from gleak.membership.gaussian_bound import GaussianBound
from gleak.membership.one_run_bound import bound_one_run
from gleak.membership.rates_bound import RatesBound
from gleak.membership.threshold_bound import Finding, Scores, split_scores

Method = Literal["rates", "gaussian", "one_run"]
FEWEST = 20
"""Scores of each kind below which no audit is made."""


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
    present, absent = map(split_scores, groups)
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


_COMPUTED: dict[str, Callable[[Scores, Scores, float, float], Finding]] = {
    "rates": RatesBound().compute,
    "gaussian": GaussianBound().compute,
    "one_run": bound_one_run,
}
