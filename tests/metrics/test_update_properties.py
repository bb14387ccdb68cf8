from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gleak.artifacts.private import Private
from gleak.core.registry import parse
from gleak.metrics.base import MetricUnavailable
from gleak.metrics.score import compare
from gleak.metrics.update_properties import UniqueSamples
from tests.metrics.comparisons import changed

DRIFT_METRIC = parse("metric", "drift")
DRIFT = np.array([0.25, 0.5])
PERTURBATION = parse("metric", "perturbation")
SENT_KILOBYTES = parse("metric", "sent_kilobytes")
UNIQUE_SAMPLES = UniqueSamples()


def test_drift_is_that_of_the_private_file(truth: Private, tmp_path: Path):
    replace(truth, drift=DRIFT).write(tmp_path / "private.h5")
    comparison = compare(tmp_path / "private.h5", None)
    assert DRIFT_METRIC.applies(comparison)
    assert DRIFT_METRIC.measure(comparison).tolist() == DRIFT.tolist()


def test_clients_of_one_step_have_no_drift(truth: Private, tmp_path: Path):
    truth.write(tmp_path / "private.h5")
    comparison = compare(tmp_path / "private.h5", None)
    assert not DRIFT_METRIC.applies(comparison)
    with pytest.raises(MetricUnavailable, match="one local step"):
        DRIFT_METRIC.measure(comparison)


def test_perturbation_is_the_mean_over_rounds(truth: Private, tmp_path: Path) -> None:
    replace(truth, perturbation=np.array([[0.25, 0.75], [2, 4]])).write(tmp_path / "private.h5")
    comparison = compare(tmp_path / "private.h5", None)
    assert PERTURBATION.applies(comparison)
    assert PERTURBATION.measure(comparison).tolist() == [0.5, 3]


def test_captured_clients_have_no_perturbation(truth: Private, tmp_path: Path) -> None:
    truth.write(tmp_path / "private.h5")
    comparison = compare(tmp_path / "private.h5", None)
    assert not PERTURBATION.applies(comparison)
    with pytest.raises(MetricUnavailable, match="captured clients"):
        PERTURBATION.measure(comparison)


def test_sent_kilobytes_are_the_mean_over_rounds(truth: Private, tmp_path: Path) -> None:
    sent = np.array([[1000.0, 3000.0], [500.0, 500.0]])
    replace(truth, sent_bytes=sent).write(tmp_path / "private.h5")
    comparison = compare(tmp_path / "private.h5", None)
    assert SENT_KILOBYTES.applies(comparison)
    assert SENT_KILOBYTES.measure(comparison).tolist() == [2, 0.5]


def test_captured_clients_have_no_size_of_what_they_sent(truth: Private, tmp_path: Path) -> None:
    truth.write(tmp_path / "private.h5")
    comparison = compare(tmp_path / "private.h5", None)
    assert not SENT_KILOBYTES.applies(comparison)
    with pytest.raises(MetricUnavailable, match="captured clients"):
        SENT_KILOBYTES.measure(comparison)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=1, max_size=3))
def test_samples_alone_in_their_class_are_counted(make_comparison, labels: list[list[int]]):
    samples = np.zeros((len(labels), 6, 2))
    comparison = changed(make_comparison(samples, samples), labels=np.array(labels))
    alone = [sum(count == 1 for count in Counter(batch).values()) for batch in labels]
    assert UNIQUE_SAMPLES.measure(comparison).tolist() == alone


def test_the_mean_over_random_batches_is_that_of_the_paper(make_comparison):
    """K sum p (1 - p)^(K - 1): 36.97 for 100 samples of 100 classes (MKOR section 3.2.1)."""
    labels = np.random.default_rng(0).integers(0, 100, (2000, 100))
    samples = np.zeros((2000, 100, 1), dtype=np.float32)
    comparison = changed(make_comparison(samples, samples), labels=labels)
    counts = UNIQUE_SAMPLES.measure(comparison)
    expected = 100 * 100 * 0.01 * 0.99**99
    assert round(expected, 2) == 36.97
    assert abs(counts.mean() - expected) < 5 * counts.std() / np.sqrt(len(counts))
