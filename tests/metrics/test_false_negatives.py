from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_curve

from gleak.artifacts.audit_trials import AuditTrials
from gleak.core.registry import parse
from gleak.membership.trade_off import gaussian_trade_off
from gleak.metrics.measured_epsilon import FinishedAudit

LEVELS = {"client": "fedsgd", "defense": "dp+sigma=2", "attack": "gradient_canaries"}
RATES = (0.01, 0.1, 0.5, 0.9)


def audited(seed: int, trials: int, mu: float = 1.0) -> FinishedAudit:
    """Normal scores, of which every other one is with a canary."""
    random = np.random.default_rng(seed)
    present = np.arange(trials) % 2 == 0
    scores = random.normal(mu * present, 1)
    return FinishedAudit.of(AuditTrials(score=scores, present=present), LEVELS)


def measure(rate: float, bound: str, audit: FinishedAudit) -> float:
    return parse("metric", f"false_negatives+fpr={rate}+bound={bound}").measure(audit)


@pytest.mark.parametrize("rate", RATES)
def test_the_share_is_that_of_the_curve(rate: float):
    """The least of scikit-learn's at no more false positives."""
    audit = audited(0, 400)
    curve = roc_curve(audit.trials.present, audit.trials.score, drop_intermediate=False)
    wanted = 1 - curve[1][curve[0] <= rate + 1e-12].max()
    found = parse("metric", f"false_negatives+fpr={rate}").measure(audit)
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("rate", RATES)
def test_bounds_miss_the_true_rate_in_at_most_a_twentieth_of_audits(rate: float):
    (true,) = gaussian_trade_off(np.array([rate]), 1.0)
    assert true == pytest.approx(norm.cdf(norm.ppf(1 - rate) - 1))
    outside = 0
    for seed in range(200):
        audit = audited(seed, 600)
        low, high = (measure(rate, bound, audit) for bound in ("lower", "upper"))
        outside += not low <= true <= high
    assert outside <= 10 + 2 * 3  # two deviations of a binomial above its mean


def test_bounds_come_closer_with_more_trials():
    widths = [
        measure(0.1, "upper", audit) - measure(0.1, "lower", audit)
        for audit in (audited(0, 200), audited(0, 2000), audited(0, 20_000))
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.1


def test_a_rate_that_so_few_trials_cannot_show_bounds_nothing_from_above():
    audit = audited(0, 100, mu=9)
    assert parse("metric", "false_negatives+fpr=0.001").measure(audit) == 0
    assert measure(0.001, "upper", audit) == 1
    assert measure(0.001, "lower", audit) == 0
