from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gleak.artifacts.audit_trials import AuditTrials
from gleak.artifacts.store import Refused
from gleak.core.registry import parse
from gleak.membership.epsilon_audit import audit_scores
from gleak.membership.trade_off import gaussian_epsilon
from gleak.metrics.base import MetricUnavailable, metrics_of
from gleak.metrics.measured_epsilon import EpsilonAccounted, FinishedAudit
from gleak.metrics.score_audit import score_audit
from gleak.metrics.score_table import read_scores

LEVELS = {
    "dataset": "digits",
    "model": "lenet",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd",
    "defense": "dp+sigma=2",
    "attack": "gradient_canaries",
}


@pytest.fixture
def trials() -> AuditTrials:
    random = np.random.default_rng(0)
    present = random.random(1000) < 0.5
    return AuditTrials(score=random.normal(present, 1), present=present)


def accounted(
    defense: str,
    client: str = "fedsgd",
    recorded: np.ndarray | None = None,
    audit: str = "gradient_canaries",
) -> float:
    trials = AuditTrials(
        score=np.zeros(2), present=np.array([True, False]), noise_multipliers=recorded
    )
    levels = {**LEVELS, "defense": defense, "client": client, "attack": audit}
    return EpsilonAccounted().measure(FinishedAudit.of(trials, levels))


def test_scores_hold_the_bound_beside_what_is_proven(trials: AuditTrials, tmp_path: Path):
    trials.write(tmp_path / "audit.h5")
    table = score_audit(tmp_path / "audit.h5", tmp_path / "scores.csv", LEVELS)
    pd.testing.assert_frame_equal(table, read_scores([tmp_path / "scores.csv"]), rtol=1e-8)
    values = dict(zip(table["metric"], table["value"], strict=True))
    assert set(values) == {str(metric) for metric in metrics_of("audit")}
    bound = audit_scores(
        trials.score[trials.present], trials.score[~trials.present], 1e-5, 0.95, "gaussian"
    )
    assert values["epsilon_measured"] == bound.epsilon
    assert values["epsilon_measurable"] == bound.ceiling
    assert 0 < values["epsilon_measured"] < values["epsilon_accounted"]
    assert gaussian_epsilon(values["mu_accounted"], 1e-5) <= values["epsilon_accounted"]
    assert values["mu_accounted"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("defense", "client", "recorded", "mu"),
    [
        ("dp+sigma=2", "fedsgd", None, 1),
        ("dp+sigma=4", "epochs+batch_size=8+epochs=4+mini_batch=8", None, 1),
        ("flower_central_dp+clients=4+noise_multiplier=2", "fedsgd+batch_size=4", None, 1),
        ("fedcdp+snr=none+sigma=2", "fedsgd", np.array([1.0]), 1),
        ("fedcdp+snr=none+sigma=2", "fedavg+local_steps=4", np.ones(4), 2),
    ],
)
def test_the_accountant_composes_rounds_and_steps(defense, client, recorded, mu):
    exact = gaussian_epsilon(mu, 1e-5)
    assert exact <= accounted(defense, client, recorded) < exact + 0.03


@pytest.mark.parametrize("sigma", [0.1, 0.01])
def test_weak_noise_has_an_epsilon_too(sigma):
    exact = gaussian_epsilon(2 / sigma, 1e-5)
    assert exact > 250
    assert exact <= accounted(f"dp+sigma={sigma}") < 1.01 * exact


@pytest.mark.parametrize(
    ("defense", "recorded", "reason"),
    [
        ("none", None, "guarantees no epsilon"),
        ("gaussian", None, "guarantees no epsilon"),
        ("fedcdp", np.ones(1), "depends on the data"),
        ("dp+sigma=0", None, "infinite"),
    ],
)
def test_nothing_is_accounted_where_nothing_is_proven(defense, recorded, reason):
    with pytest.raises(MetricUnavailable, match=reason):
        accounted(defense, recorded=recorded)


def test_nothing_is_accounted_at_a_delta_of_0():
    with pytest.raises(MetricUnavailable, match="delta = 0"):
        accounted("dp+sigma=2", audit="gradient_canaries+delta=0+method=rates")


def test_a_refusal_is_passed_on(tmp_path: Path):
    Refused(reason="no clients").write(tmp_path / "audit.h5")
    table = score_audit(tmp_path / "audit.h5", tmp_path / "scores.csv", LEVELS)
    assert table["reason"].tolist() == ["no clients"]


def test_metrics_of_audits_are_read_from_their_texts():
    assert [str(parse("metric", str(metric))) for metric in metrics_of("audit")] == [
        "epsilon_accounted",
        "epsilon_measurable",
        "epsilon_measured",
        "false_negatives",
        "mu_accounted",
    ]
