from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.errors import SpecError
from gleak.experiments.axis_labels import AxisLabels
from gleak.experiments.claims import Bound, Closeness, Expectation, Order, Trend, sort_of

COMMON = {"id": "a", "grid": "g", "metric": "mse", "claim": "c", "source": "s"}


def make(**fields: Any) -> Expectation:
    return sort_of(fields)(**COMMON, **fields)


@pytest.mark.parametrize(
    ("fields", "values", "verdict"),
    [
        ({"along": "attack", "order": ["cpl", "dlg"]}, [1.0, 2.0], "holds"),
        ({"along": "attack", "order": ["cpl", "dlg"]}, [2.0, 2.0], "fails"),
        ({"along": "attack", "order": ["cpl", "dlg"], "relation": "<="}, [2.0, 2.0], "holds"),
        ({"along": "attack", "order": ["cpl", "dlg"], "relation": "<="}, [2.1, 2.0], "fails"),
        ({"along": "attack", "order": ["cpl", "dlg"]}, [1.0, math.nan], "no data"),
        (
            {"along": "defense", "order": ["a", "b", "c"], "trend": "falls"},
            [3.0, 3.0, 1.0],
            "holds",
        ),
        (
            {"along": "defense", "order": ["a", "b", "c"], "trend": "falls"},
            [3.0, 3.1, 1.0],
            "fails",
        ),
        (
            {"along": "defense", "order": ["a", "b", "c"], "trend": "falls", "slack": 0.2},
            [3.0, 3.1, 1.0],
            "holds",
        ),
        ({"along": "defense", "order": ["a", "b"], "trend": "falls"}, [1.0, 1.0], "fails"),
        ({"along": "defense", "order": ["a", "b"], "trend": "rises"}, [1.0, 2.0], "holds"),
        ({"along": "defense", "order": ["a", "b", "c"], "within": 0.5}, [1.0, 1.5, 0.5], "holds"),
        ({"along": "defense", "order": ["a", "b", "c"], "within": 0.5}, [1.0, 1.2, 0.4], "fails"),
        ({"along": "defense", "order": ["a", "b"], "within": 0}, [1.0, math.nan], "no data"),
        ({"at_most": 0.2}, [0.2], "holds"),
        ({"at_most": 0.2}, [0.3], "fails"),
        ({"at_least": 0.2, "at_most": 0.4}, [0.1], "fails"),
        ({"at_least": 0.2}, [math.nan], "no data"),
    ],
)
def test_verdicts(fields: dict[str, Any], values: list[float], verdict: str):
    assert make(**fields).judge(values) == verdict


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=6, unique=True))
def test_a_rising_trend_is_a_falling_one_backwards(values: list[float]):
    fields = {"along": "defense", "order": [str(value) for value in values]}
    rises, falls = (make(**fields, trend=trend) for trend in ("rises", "falls"))
    assert rises.judge(values) == falls.judge(values[::-1])
    assert rises.judge(values) == make(**fields).judge(values)


def test_kinds_are_told_by_their_keys():
    order = {"along": "attack", "order": ["a", "b"]}
    assert sort_of(order) is Order
    assert sort_of({**order, "trend": "falls"}) is Trend
    assert sort_of({**order, "within": 0.1}) is Closeness
    assert sort_of({"at_least": 1}) is Bound
    with pytest.raises(SpecError, match="claims nothing"):
        sort_of({"along": "attack"})


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"metric": "msee", "at_most": 1}, "did you mean 'mse'"),
        ({"where": {"dataset": "mnist"}, "at_most": 1}, "no dataset 'mnist' at any scale"),
        ({"along": "attak", "order": ["cpl", "dlg"]}, "did you mean 'attack'"),
        ({"along": "attack", "order": ["cpl", "idlg"]}, "no attack 'idlg' at any scale"),
    ],
)
def test_what_no_scale_has_is_refused(names: AxisLabels, fields: dict[str, Any], fault: str):
    expectation = sort_of(fields)(**{**COMMON, **fields})
    with pytest.raises(SpecError, match=fault):
        expectation.check([names, names])
