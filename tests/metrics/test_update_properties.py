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
from gleak.metrics.score import compare
from gleak.metrics.update_properties import UniqueSamples
from tests.metrics.subjects import changed


@pytest.mark.parametrize(
    ("name", "field", "values", "expected"),
    [
        ("drift", "drift", [0.25, 0.5], [0.25, 0.5]),
        ("epoch_change", "epoch_change", [0.25, 0.5], [0.25, 0.5]),
        ("perturbation", "perturbation", [[0.25, 0.75], [2, 4]], [0.5, 3]),
        ("sent_kilobytes", "sent_bytes", [[1000.0, 3000.0], [500.0, 500.0]], [2, 0.5]),
    ],
)
def test_properties_in_the_private_file_are_averaged_over_rounds(
    truth: Private, tmp_path: Path, name: str, field: str, values: list, expected: list[float]
) -> None:
    metric, path = parse("metric", name), tmp_path / "private.h5"
    truth.write(path)
    assert not metric.applies(compare(path, None))
    replace(truth, **{field: np.array(values)}).write(path)
    assert metric.applies(compare(path, None))
    assert metric.measure(compare(path, None)).tolist() == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=1, max_size=3))
def test_samples_alone_in_their_class_are_counted(make_comparison, labels: list[list[int]]):
    samples = np.zeros((len(labels), 6, 2))
    comparison = changed(make_comparison(samples, samples), labels=np.array(labels))
    alone = [sum(count == 1 for count in Counter(batch).values()) for batch in labels]
    assert UniqueSamples().measure(comparison).tolist() == alone


def test_the_mean_over_random_batches_is_that_of_the_paper(make_comparison):
    """K sum p (1 - p)^(K - 1): 36.97 for 100 samples of 100 classes (MKOR section 3.2.1)."""
    labels = np.random.default_rng(0).integers(0, 100, (2000, 100))
    samples = np.zeros((2000, 100, 1), dtype=np.float32)
    comparison = changed(make_comparison(samples, samples), labels=labels)
    counts = UniqueSamples().measure(comparison)
    expected = 100 * 100 * 0.01 * 0.99**99
    assert round(expected, 2) == 36.97
    assert abs(counts.mean() - expected) < 5 * counts.std() / np.sqrt(len(counts))
