"""What every registered metric must do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gleak.metrics.base import Comparison, MetricUnavailable
from gleak.registry import load, parse

Make = Callable[..., Comparison]
METRICS = {name: parse("metric", name) for name in load("metric")}
PER_SAMPLE = [name for name, metric in METRICS.items() if metric.per == "sample"]
PER_VICTIM = [name for name, metric in METRICS.items() if metric.per == "victim"]
OF_CONTENT = [name for name in PER_SAMPLE if name != "success_labels"]

pytestmark = pytest.mark.usefixtures("random_weights")


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(1).random((2, 3, 3, 16, 14), dtype=np.float32)


@pytest.mark.parametrize("name", METRICS)
def test_values_have_the_declared_shape_and_are_finite(
    name: str, make_comparison: Make, images: np.ndarray
):
    metric = METRICS[name]
    values = metric.measure(make_comparison(images, 1 - images))
    assert values.shape == ((2, 3) if metric.per == "sample" else (2,))
    assert values.dtype == np.float64
    assert np.isfinite(values).all()


@pytest.mark.parametrize("name", PER_SAMPLE)
def test_identical_samples_have_the_perfect_value(
    name: str, make_comparison: Make, images: np.ndarray
):
    perfect = {"psnr": 100.0, "ssim": 1.0, "success_content": 1.0, "success_labels": 1.0}
    values = METRICS[name].measure(make_comparison(images, images.copy()))
    np.testing.assert_allclose(values, perfect.get(name, 0.0), atol=1e-12)


@pytest.mark.parametrize("name", OF_CONTENT)
def test_noise_makes_every_sample_worse(name: str, make_comparison: Make, images: np.ndarray):
    noise = np.random.default_rng(2).normal(0, 0.2, images.shape).astype(np.float32)
    estimate = np.clip(images + noise, 0, 1)
    perfect = METRICS[name].measure(make_comparison(images, images))
    noisy = METRICS[name].measure(make_comparison(images, estimate))
    worse = noisy < perfect if METRICS[name].better == "higher" else noisy > perfect
    assert worse.all()


@pytest.mark.parametrize("name", OF_CONTENT)
def test_a_missing_sample_is_not_matched_and_leaves_the_others_alone(
    name: str, make_comparison: Make, images: np.ndarray
):
    estimate = images[:, :, ::-1].copy()
    whole = make_comparison(images, estimate)
    holed = replace(whole, estimate=estimate.copy())
    holed.estimate[1, 2] = np.nan
    matched = METRICS[name].matched(holed)
    assert matched.sum() == 5
    assert not matched[1, 2]
    with_hole, without = METRICS[name].measure(holed), METRICS[name].measure(whole)
    np.testing.assert_allclose(with_hole[matched], without[matched], rtol=1e-6)


@pytest.mark.parametrize("name", PER_VICTIM)
def test_the_truth_control_has_no_cost(name: str, make_comparison: Make, images: np.ndarray):
    control = replace(make_comparison(images, images), reconstruction=None, provenance={})
    with pytest.raises(MetricUnavailable, match="truth control does not iterate"):
        METRICS[name].measure(control)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_says_what_it_is(name: str):
    metric = METRICS[name]
    assert metric.__doc__
    assert metric.modalities <= {"image", "tabular"}
    assert metric.better in ("higher", "lower")


def test_metrics_of_samples_take_tables(make_comparison: Make):
    table = np.random.default_rng(3).random((2, 4, 5))
    comparison = make_comparison(table, table)
    for name in PER_SAMPLE:
        if "tabular" in METRICS[name].modalities:
            assert METRICS[name].measure(comparison).shape == (2, 4)


def test_importing_the_metrics_stays_light():
    import subprocess
    import sys

    heavy = "{'torch', 'torchvision', 'torchmetrics', 'lpips', 'pandas', 'scipy'}"
    code = f"import gleak.metrics, sys; print(sorted({heavy} & set(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert output.stdout.strip() == "[]"
