from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.core.registry import find
from gleak.core.spec import build_spec
from gleak.experiments.figure_spec import Shown
from gleak.figures.picks import pick, read_values

VALUES = {(0, 0): 0.3, (0, 1): 0.1, (0, 2): 0.4, (0, 3): 0.2, (1, 0): 0.9}


def make(**fields: Any) -> Any:
    layout = {"layout": "results", "grid": "attacks"}
    return build_spec(find("figure", "images"), {**layout, **fields})


@pytest.mark.parametrize(
    ("fields", "samples"),
    [
        ({"samples": 2}, [0, 1]),
        ({"samples": 2, "pick": "best"}, [1, 3]),
        ({"samples": 2, "pick": "worst"}, [2, 0]),
        ({"samples": 1, "pick": "both"}, [1, 2]),
        ({"samples": 9, "pick": "both"}, [1, 3, 2, 0]),
        ({"samples": 1, "pick": "best", "metric": "ssim"}, [2]),
    ],
)
def test_samples_that_are_shown(fields: dict[str, Any], samples: list[int]):
    assert [picked.sample for picked in pick(make(**fields), VALUES, 0, 4)] == samples


def test_a_sample_without_a_value_is_worse_than_all_others():
    for metric in ("mse", "ssim"):
        figure = make(samples=4, pick="worst", metric=metric)
        values = {key: value for key, value in VALUES.items() if key != (0, 1)}
        assert pick(figure, values, 0, 4)[0].sample == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.integers(1, 9))
def test_best_and_worst_are_told_apart_and_no_sample_stands_twice(
    values: list[float], samples: int
):
    found = {(0, sample): value for sample, value in enumerate(values)}
    picks = pick(make(samples=samples, pick="both"), found, 0, len(values))
    best, worst = (
        [found[0, one.sample] for one in picks if one.place == place] for place in ("best", "worst")
    )
    assert len(best) == len(worst) > 0
    assert max(best) <= min(worst)
    assert len(values) == 1 or len({one.sample for one in picks}) == len(picks)


def test_values_are_those_of_the_cell_and_the_metric(
    shown: Callable[..., Shown], scored: Callable[..., pd.DataFrame]
):
    tables = [
        scored("ssim", [[0.5, 0.25], [float("nan"), 1.0]]),
        scored("mse", [[7.0, 8.0]]),
        scored("ssim", [[9.0, 9.0]], attack="dlg"),
        scored("iterations", [4.0]),
    ]
    found = read_values(make(metric="ssim"), shown(), pd.concat(tables))
    assert found == {(0, 0): 0.5, (0, 1): 0.25, (1, 1): 1.0}
