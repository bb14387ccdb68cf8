from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gleak.core.registry import parse
from gleak.metrics.base import MetricUnavailable

INPUTS = np.zeros((3, 1, 2))
SEARCHED = ("iterations", "evaluations", "restarts", "objective")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("iterations", [1, 2, 3]),
        ("evaluations", [1, 2, 3]),
        ("restarts", [1, 2, 3]),
        ("objective", [0.25, 0.25, 0.25]),
        ("seconds", [4, 4, 4]),
        ("peak_memory", [345, 345, 345]),
    ],
)
def test_the_books_of_the_attack(make_comparison, name: str, expected: list[float]):
    values = parse("metric", name).measure(make_comparison(INPUTS, INPUTS))
    assert values.tolist() == expected


def test_seconds_are_of_the_cpu_unless_a_gpu_computed(make_comparison) -> None:
    cost = {"cpu_seconds": 12.0, "seconds": 30.0}
    comparison = make_comparison(INPUTS, INPUTS)
    measured = [
        parse("metric", "seconds").measure(replace(comparison, provenance={**cost, **device}))
        for device in ({"device": "cpu"}, {"device": "NVIDIA H200"})
    ]
    assert [values.tolist() for values in measured] == [[4.0] * 3, [10.0] * 3]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *((name, f"does not iterate .* no /{name}") for name in SEARCHED),
        ("seconds", "cpu_seconds"),
        ("peak_memory", "peak_memory_mb"),
    ],
)
def test_what_was_not_recorded_is_unavailable(
    make_comparison, make_reconstruction, name: str, fault: str
) -> None:
    comparison = make_comparison(INPUTS, INPUTS)
    comparison = replace(comparison, reconstruction=make_reconstruction(), provenance={})
    with pytest.raises(MetricUnavailable, match=fault):
        parse("metric", name).measure(comparison)
