"""Errors of the test of an audit: false negatives at a rate of false positives."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from gleak.core.lazy import scipy
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import SHARE
from gleak.metrics.measured_epsilon import AuditMetricSpec, FinishedAudit

ROUNDING = 1e-9
"""Added to a number of trials before it is cut off."""


@register("false_negatives")
class FalseNegatives(AuditMetricSpec):
    """Share of canaries that an audit's test misses at a rate of false positives, or a bound on it.

    The test says that a canary took part if its score exceeds a score without one. As measured, at
    most a share ``fpr`` of those exceed it. The bounds hold for the test whose true rate of false
    positives is ``fpr``, together with the audit's confidence: the threshold is an order statistic
    of the scores without a canary, of which the rate has a beta distribution, and the false
    negatives there are bounded by Clopper and Pearson; each of these four steps has a quarter of
    the error. With too few trials the upper bound is 1.
    """

    source = "Dong et al. 2022, Definition 2.1; Clopper and Pearson 1934; Wilks 1941"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    limits = SHARE

    fpr: float = parameter(0.1, "rate of false positives", gt=0, lt=1)
    bound: Literal["none", "lower", "upper"] = parameter(
        "none", "end of the interval; none: the share as measured"
    )

    def measure(self, audited: FinishedAudit) -> float:
        score, present = audited.trials.score, audited.trials.present
        others = np.sort(score[~present])[::-1]
        error = (1 - audited.audit.confidence) / 4
        if self.bound == "none":
            above = int(self.fpr * len(others) + ROUNDING)
        else:
            above = _trials_above(self.bound, self.fpr, len(others), error)
        if not 0 <= above < len(others):
            return 1.0 if above < 0 else 0.0
        missed, trials = int((score[present] <= others[above]).sum()), int(present.sum())
        if self.bound == "none":
            return missed / trials
        if self.bound == "lower":
            return _quantile(missed, trials - missed + 1, error) if missed else 0.0
        return _quantile(missed + 1, trials - missed, 1 - error) if missed < trials else 1.0


def _trials_above(bound: str, fpr: float, trials: int, error: float) -> int:
    """Return the number of trials without a canary above the threshold of a bound.

    The true rate of false positives is then at most (upper), or at least (lower), ``fpr``, but for
    the error. -1 or ``trials`` if no threshold is known to have it.
    """
    above = np.arange(trials)
    level = 1 - error if bound == "upper" else error
    rates = scipy.special.betaincinv(above + 1, trials - above, level)
    if bound == "upper":
        return int((rates <= fpr).sum()) - 1
    return int((rates < fpr).sum())


def _quantile(first: int, second: int, level: float) -> float:
    """Compute a quantile of a beta distribution."""
    return float(scipy.special.betaincinv(first, second, level))
