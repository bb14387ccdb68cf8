from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gleak.artifacts.private import Private
from gleak.core.registry import parse
from gleak.metrics.base import MetricUnavailable
from gleak.metrics.score import compare

METRIC = parse("metric", "drift")
DRIFT = np.array([0.25, 0.5])


def test_it_is_that_of_the_private_file(truth: Private, tmp_path: Path):
    replace(truth, drift=DRIFT).write(tmp_path / "private.h5")
    comparison = compare(tmp_path / "private.h5", None)
    assert METRIC.applies(comparison)
    assert METRIC.measure(comparison).tolist() == DRIFT.tolist()


def test_clients_of_one_step_have_none(truth: Private, tmp_path: Path):
    truth.write(tmp_path / "private.h5")
    comparison = compare(tmp_path / "private.h5", None)
    assert not METRIC.applies(comparison)
    with pytest.raises(MetricUnavailable, match="one local step"):
        METRIC.measure(comparison)
