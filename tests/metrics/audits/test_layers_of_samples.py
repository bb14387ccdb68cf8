"""Audits of dense layers that take the samples: shared directions, balance, expected activity."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from gleak.core.registry import parse
from gleak.metrics.audits.alarms import audits
from gleak.metrics.audits.balanced_rows import AuditBalance
from gleak.metrics.audits.base import Broadcast
from gleak.metrics.audits.expected_activity import AuditActivity, active_shares, expected_shares
from gleak.metrics.audits.shared_direction import AuditDirection, first_direction
from gleak.metrics.base import MetricUnavailable
from tests.metrics.subjects import fresh_model, model_of, train_split

SHAPE = (3, 12, 12)
VALUES, ROWS = 432, 64
AUDITS = (AuditDirection(), AuditBalance(), AuditActivity())


def layer(weights: np.ndarray, biases: np.ndarray, **values: object) -> Broadcast:
    parameters = {"1.weight": weights.astype(np.float32), "1.bias": biases.astype(np.float32)}
    return Broadcast(model_of(parameters, input_shape=np.array(SHAPE), **values))


def rows(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(ROWS, VALUES))


@pytest.mark.parametrize(
    ("model", "crafting", "found"),
    [
        ("fc2", "honest", set()),
        ("planted+model=fc2", "honest", {"size"}),
        ("planted+model=fc2", "imprint", {"direction", "size"}),
        ("fc2", "trap_weights", {"activity", "balance"}),
        ("fc2", "qbi", {"activity"}),
    ],
)
def test_craftings_at_their_defaults_alarm(model: str, crafting: str, found: set[str]):
    """By the parameters alone, without samples of a client."""
    honest = fresh_model(model, SHAPE, 10)
    broadcast = Broadcast(parse("crafting", crafting).craft(honest, 0).model)
    assert {audit.name for audit in audits() if audit.alarms(broadcast)} == {
        f"audit_{name}" for name in found
    }


def test_the_spread_of_thresholds_is_that_of_the_bins():
    """All rows measure the mean; thresholds are evenly spaced between 0 and 1."""
    edges = np.linspace(0, 1, 101)
    equal = np.tile(np.full(VALUES, 1 / VALUES), (101, 1)) * np.linspace(1, 3, 101)[:, None]
    found = AuditDirection().worst(layer(equal, -edges * np.linspace(1, 3, 101)))
    assert found.statistic == pytest.approx(0.5, rel=1e-3)
    assert AuditDirection().worst(layer(equal, -0.3 * np.linspace(1, 3, 101))).statistic < 1e-6
    assert AuditDirection().worst(layer(rows(), np.arange(ROWS))).statistic == 0


@pytest.mark.parametrize("count", [20, 900])
def test_the_direction_is_the_first_singular_vector(count: int):
    units = np.random.default_rng(0).normal(size=(count, 60)) + 0.3
    expected = np.linalg.svd(units, full_matrices=False)[2][0]
    assert abs(first_direction(units) @ expected) == pytest.approx(1)


def test_sums_of_rows_agree_as_little_as_by_chance_unless_they_are_balanced():
    assert AuditBalance().worst(layer(rows(), np.zeros(ROWS))).statistic == pytest.approx(1, abs=1)
    equal_sums = rows() - rows().mean(axis=1, keepdims=True)
    assert AuditBalance().worst(layer(equal_sums, np.zeros(ROWS))).statistic > 1e4
    one_direction = np.outer(np.linspace(1, 2, ROWS), rows()[0])
    assert AuditBalance().worst(layer(one_direction, np.zeros(ROWS))).statistic == 0


def test_expected_shares_are_those_of_independent_normal_values():
    random, weights, biases = np.random.default_rng(0), rows()[:5], np.arange(5) - 60.0
    samples = random.normal(0.4, 0.3, size=(20_000, VALUES))
    measured = (samples @ weights.T + biases > 0).mean(axis=0)
    np.testing.assert_allclose(expected_shares(weights, biases, 0.4, 0.3), measured, atol=0.01)


def test_the_busiest_neurons_count():
    """Biases at the quantile of one sample in ten."""
    weights = rows()
    biases = -0.475 * weights.sum(axis=1)
    biases -= NormalDist().inv_cdf(0.9) * 0.25 * np.linalg.norm(weights, axis=1)
    assert AuditActivity().worst(layer(weights, biases)).statistic == pytest.approx(0.9, abs=1e-3)
    biases[:8] += 1000
    assert AuditActivity().worst(layer(weights, biases)).statistic == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("audit", AUDITS, ids=lambda audit: audit.name)
def test_other_layers_and_tables_say_nothing(audit: AuditDirection):
    for broadcast in (
        layer(rows()[:, 1:], np.zeros(ROWS)),
        layer(rows(), np.zeros(ROWS), modality="tabular"),
    ):
        with pytest.raises(MetricUnavailable):
            audit.measure(broadcast)


@pytest.mark.parametrize("audit", audits(), ids=lambda audit: audit.name)
def test_every_audit_says_in_one_sentence_what_an_alarm_means(audit: AuditDirection):
    assert audit.meaning.endswith(".")
    assert ". " not in audit.meaning
    assert len(audit.meaning.split()) <= 40


def test_shares_of_active_samples_leave_out_silent_neurons():
    gradients = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [2, -1, 1e-4, 3], [1e-12, 0, 0, 0]])
    np.testing.assert_allclose(active_shares(gradients), [0.25, 0.75])


@pytest.mark.parametrize(("crafting", "silent"), [("honest", False), ("qbi", True)])
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_activity_is_measured_on_samples(crafting: str, silent: bool, activation: str):
    """Neurons of a network of sigmoids are never silent, whatever their biases."""
    data = train_split(np.random.default_rng(0).integers(0, 256, (64, *SHAPE)), 10)
    honest = fresh_model(f"fc2+activation={activation}", SHAPE, 10)
    parameters = dict(
        parse("crafting", "qbi").craft(fresh_model("fc2", SHAPE, 10), 0).model.parameters
    )
    model = replace(honest, parameters=parameters) if silent else honest
    assert AuditActivity().alarms(Broadcast(model, data)) == (silent and activation == "relu")


def test_layers_that_training_silenced_score_nothing():
    """Fewer than a quarter of the neurons respond."""
    data = train_split(np.random.default_rng(0).integers(0, 256, (64, *SHAPE)), 10)
    crafted = parse("crafting", "qbi").craft(fresh_model("fc2", SHAPE, 10), 0).model
    biases = crafted.parameters["1.bias"].copy()
    biases[50:] = -1e3
    dead = replace(crafted, parameters={**crafted.parameters, "1.bias": biases})
    assert AuditActivity().worst(Broadcast(crafted, data)).statistic > 0.7
    assert AuditActivity().worst(Broadcast(dead, data)).statistic == 0
