from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.private import Private
from gleak.core.registry import parse
from gleak.metrics.base import MetricUnavailable
from gleak.metrics.score import compare

METRIC = parse("metric", "perturbation")


def test_it_is_the_mean_over_rounds_of_the_private_file(truth: Private, tmp_path: Path) -> None:
    replace(truth, perturbation=np.array([[0.25, 0.75], [2, 4]])).write(tmp_path / "private.h5")
    comparison = compare(tmp_path / "private.h5", None)
    assert METRIC.applies(comparison)
    assert METRIC.measure(comparison).tolist() == [0.5, 3]


def test_captured_clients_have_none(truth: Private, tmp_path: Path) -> None:
    truth.write(tmp_path / "private.h5")
    comparison = compare(tmp_path / "private.h5", None)
    assert not METRIC.applies(comparison)
    with pytest.raises(MetricUnavailable, match="captured clients"):
        METRIC.measure(comparison)
