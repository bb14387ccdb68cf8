"""Contract of all registered metrics."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gleak.metrics.base import Comparison, MetricUnavailable, metrics_of

Make = Callable[..., Comparison]
METRICS = {metric.name: metric for metric in metrics_of("attack")}
PER_SAMPLE = [name for name, metric in METRICS.items() if metric.per == "sample"]
PER_VICTIM = [name for name, metric in METRICS.items() if metric.per == "victim"]
OF_CONTENT = [name for name in PER_SAMPLE if not METRICS[name].needs_labels]

ELSEWHERE = {
    "defense": "flower_local_dp",
    "model": "planted+bins=10",
    "crafting": "imprint",
    "attack": "imprint",
}
"""Levels to which metrics apply that do not apply to the others."""

pytestmark = pytest.mark.usefixtures("random_weights")


@pytest.fixture
def samples(name: str) -> np.ndarray:
    """Two victims of three images each, or of three rows where a metric takes tables alone."""
    shape = (3, 16, 14) if "image" in METRICS[name].modalities else (40,)
    return np.random.default_rng(1).random((2, 3, *shape), dtype=np.float32)


def with_noise(samples: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(2).normal(0, 0.2, samples.shape).astype(np.float32)
    return np.clip(samples + noise, 0, 1)


def without_last(comparison: Comparison) -> Comparison:
    """The comparison with an attack that finds one sample of each victim too few: the last."""
    found, estimate = comparison.reconstruction, comparison.estimate.copy()
    assert found is not None
    estimate[:, -1] = np.nan
    fields = ("inputs", "labels", "mirrored", "embeddings", "averaged_count", "clients")
    fewer = {field: getattr(found, field)[:, :-1] for field in fields}
    listed = ("candidate_inputs", "candidate_labels")
    fewer |= {field: getattr(found, field)[:, :, :-1] for field in listed}
    return replace(comparison, estimate=estimate, reconstruction=replace(found, **fewer))


@pytest.mark.parametrize("name", METRICS)
def test_values_have_the_declared_shape_and_are_finite(
    name: str, make_comparison: Make, samples: np.ndarray
):
    metric, comparison = METRICS[name], make_comparison(samples, 1 - samples)
    if not metric.applies(comparison):
        comparison = replace(comparison, levels={**comparison.levels, **ELSEWHERE})
    values = metric.measure(comparison)
    assert values.shape == ((2, 3) if metric.per == "sample" else (2,))
    assert values.dtype == np.float64
    assert np.isfinite(values).all()
    low, high = metric.limits
    assert ((values >= low) & (values <= high)).all()
    assert (low, high) == (0, 1) or not metric.binary


@pytest.mark.parametrize("name", PER_SAMPLE)
def test_identical_samples_have_the_perfect_value(
    name: str, make_comparison: Make, samples: np.ndarray
):
    metric = METRICS[name]
    perfect = 100.0 if metric.unit == "dB" else float(metric.better == "higher")
    values = metric.measure(make_comparison(samples, samples.copy()))
    np.testing.assert_allclose(values, perfect, atol=1e-12)


@pytest.mark.parametrize("name", OF_CONTENT)
def test_noise_makes_every_sample_worse(name: str, make_comparison: Make, samples: np.ndarray):
    perfect = METRICS[name].measure(make_comparison(samples, samples))
    noisy = METRICS[name].measure(make_comparison(samples, with_noise(samples)))
    worse = noisy < perfect if METRICS[name].better == "higher" else noisy > perfect
    assert worse.all()


@pytest.mark.parametrize("name", OF_CONTENT)
def test_a_missing_sample_is_not_matched_and_leaves_the_others_alone(
    name: str, make_comparison: Make, samples: np.ndarray
):
    whole = make_comparison(samples, with_noise(samples))
    holed = without_last(whole)
    matched = METRICS[name].matched(holed)
    assert matched.tolist() == [[True, True, False]] * 2
    with_hole, without = METRICS[name].measure(holed), METRICS[name].measure(whole)
    np.testing.assert_allclose(with_hole[matched], without[matched], rtol=1e-6)


@pytest.mark.parametrize("name", PER_VICTIM)
def test_the_truth_control_has_the_metrics_that_need_no_attack(
    name: str, make_comparison: Make, samples: np.ndarray
):
    """Costs and what an attack says of itself are not among it."""
    metric, attacked = METRICS[name], make_comparison(samples, 1 - samples)
    control = replace(attacked, reconstruction=None, provenance={})
    books = attacked.reconstruction
    assert books is not None
    fields = ("inputs", "labels", "averaged_count", "clients")
    fewer = {name: getattr(books, name)[:, :-1] for name in fields}
    worse = replace(books, objective=books.objective + 1, iterations=books.iterations + 1, **fewer)
    another = replace(attacked, reconstruction=worse, provenance={})
    try:
        said = metric.measure(control) if metric.applies(control) else None
    except MetricUnavailable as reason:
        assert "truth control does not iterate" in str(reason)
    else:
        if said is not None:
            for comparison in (attacked, another):
                np.testing.assert_array_equal(metric.measure(comparison), said)


def test_metrics_of_samples_take_tables(make_comparison: Make):
    table = np.random.default_rng(3).random((2, 4, 5))
    comparison = make_comparison(table, table)
    for name in PER_SAMPLE:
        if "tabular" in METRICS[name].modalities:
            assert METRICS[name].measure(comparison).shape == (2, 4)


def test_importing_the_metrics_stays_light():
    heavy = "{'torch', 'torchvision', 'torchmetrics', 'lpips', 'opacus', 'pandas', 'scipy'}"
    code = f"import gleak.metrics, sys; print(sorted({heavy} & set(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert output.stdout.strip() == "[]"
