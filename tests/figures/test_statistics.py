from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.core.registry import parse
from gleak.figures.statistics import (
    SUCCESS,
    band_over_victims,
    counted,
    spread_over_victims,
    worse_than_blind,
)
from gleak.figures.statistics import summarise as summarise_spec
from tests.score_tables import Scored


def summarise(scores: pd.DataFrame, metric: str, *fields: Any, **more: Any) -> pd.DataFrame:
    return summarise_spec(scores, parse("metric", metric), *fields, **more)


@pytest.mark.parametrize(
    ("statistic", "by_hand"),
    [
        ("mean", statistics.mean),
        ("median", statistics.median),
        ("min", min),
        ("max", max),
        ("var", statistics.variance),
        ("std", statistics.stdev),
    ],
)
def test_statistics_equal_a_hand_computation(scored: Scored, statistic: str, by_hand: Callable):
    values = [3.0, 1.0, 8.0, 2.5]
    row = summarise(scored("mse", [[v] for v in values]), "mse", statistic).iloc[0]
    assert row["ours"] == pytest.approx(by_hand(values))
    assert (row["count"], row["rows"]) == (4, 4)


@pytest.mark.parametrize(("metric", "best"), [("ssim", (0.9 + 0.4) / 2), ("mse", (0.1 + 0.3) / 2)])
def test_the_best_is_that_of_each_victim_on_average(scored: Scored, metric: str, best: float):
    table = pd.concat(
        [scored(metric, [[0.1, 0.9, np.nan], [0.3, 0.4, 0.3]]), scored(metric, [0.5], attack="dlg")]
    )
    assert summarise(table, metric, "best")["ours"].tolist() == pytest.approx([best, 0.5])


def test_unconverged_rows_count_and_unmatched_ones_do_not(scored: Scored):
    table = pd.concat(
        [
            scored("mse", [[1.0]]),
            scored("mse", [[3.0]], "not_converged"),
            scored("mse", [[np.nan]], "unmatched"),
            scored("mse", [[np.nan]], "unavailable"),
            scored("mse", [[np.nan]], "unmatched", attack="dlg"),
        ]
    )
    ours, nothing = summarise(table, "mse").to_dict("records")
    assert (ours["ours"], ours["count"], ours["rows"]) == (2.0, 2, 4)
    assert np.isnan(nothing["ours"])
    assert (nothing["count"], nothing["rows"]) == (0, 1)


def test_only_successful_samples_count(scored: Scored):
    table = pd.concat(
        [
            scored(SUCCESS, [[1.0, 0.0], [1.0, 1.0]]),
            scored("mse", [[0.1, 5.0], [0.2, 0.3]]),
            scored("mse", [[9.0]], attack="dlg"),
            scored(SUCCESS, [[0.0]], attack="dlg"),
        ]
    )
    assert counted(table, "mse", "successful")["value"].tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(("second", "status"), [(0.0, "ok"), (np.nan, "unmatched")])
def test_a_batch_is_successful_if_all_of_it_is(scored: Scored, second: float, status: str):
    success = scored(SUCCESS, [[1.0, second], [1.0, 1.0]])
    success.loc[1, "status"] = status
    table = pd.concat([success, scored("iterations", [300.0, 40.0])])
    assert counted(table, "iterations", "successful")["value"].tolist() == [40.0]


@pytest.fixture
def half_failed(scored: Scored) -> pd.DataFrame:
    """CPL recovers one of two images, DLG none."""
    return pd.concat(
        [
            scored(SUCCESS, [[1.0], [0.0]]),
            scored("mse", [[0.1], [0.5]]),
            scored("iterations", [20.0, 300.0]),
            scored(SUCCESS, [[0.0], [0.0]], attack="dlg"),
            scored("mse", [[0.4], [0.6]], "not_converged", attack="dlg"),
            scored("iterations", [300.0, 300.0], "not_converged", attack="dlg"),
        ]
    )


@pytest.mark.parametrize(("metric", "cpl", "dlg"), [("mse", 0.1, 0.5), ("iterations", 20, 300)])
def test_the_failed_count_where_none_succeeded(
    half_failed: pd.DataFrame, metric: str, cpl: float, dlg: float
):
    found = summarise(half_failed, metric, over="successful_else_all").set_index("attack")
    assert found["ours"].to_dict() == {"cpl": cpl, "dlg": dlg}
    assert found["failed"].to_dict() == {"cpl": False, "dlg": True}
    assert found["count"].to_dict() == {"cpl": 1, "dlg": 2}
    for over in ("all", "successful"):
        assert not summarise(half_failed, metric, over=over)["failed"].any()


def test_a_cell_without_values_has_not_failed(scored: Scored):
    table = pd.concat([scored(SUCCESS, [[0.0]]), scored("ssim", [[np.nan]], "unavailable")])
    row = summarise(table, "ssim", over="successful_else_all").iloc[0]
    assert np.isnan(row["ours"])
    assert not row["failed"]


def test_the_spread_is_that_of_the_means_of_victims(scored: Scored):
    values = [[1.0, 3.0], [4.0, 8.0], [5.0, 7.0]]
    row = spread_over_victims(scored("mse", values), parse("metric", "mse")).iloc[0]
    assert row["victims"] == 3
    assert row["spread"] == pytest.approx(statistics.stdev([2, 6, 6]))


@pytest.mark.parametrize(
    ("metric", "values"),
    [("mse", [[0.5]]), ("mse", [[0.5], [0.5]]), (SUCCESS, [[0.0], [1.0]])],
)
def test_one_victim_equal_values_and_shares_of_successes_have_no_spread(
    scored: Scored, metric: str, values: list[list[float]]
):
    row = spread_over_victims(scored(metric, values), parse("metric", metric)).iloc[0]
    assert row["victims"] == len(values)
    assert np.isnan(row["spread"])


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("mse", [0.0, 0.0, 0.3], (0, 0.53)),
        ("ssim", [1.0, 1.0, 0.4], (-0.06, 1)),
        ("samples_found", [0.0, 1.0, 1.0], (0, 1)),
    ],
)
def test_bands_end_at_the_limits_of_a_metric(
    scored: Scored, metric: str, values: list[float], expected: tuple[float, float]
):
    table = scored(metric, [[value] for value in values])
    row = band_over_victims(table, parse("metric", metric)).iloc[0]
    assert (row["low"], row["high"]) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("metric", "ours", "worse"),
    [("mse", 0.3, True), ("mse", 0.1, False), ("psnr", 0.1, True), ("psnr", 0.3, False)],
)
def test_worse_than_blind_depends_on_the_direction_of_the_metric(
    scored: Scored, metric: str, ours: float, worse: bool
):
    tables = [
        scored(metric, [[value]], attack=attack, defense=defense, crafting=crafting)
        for attack, defense, crafting, value in (
            ("cpl", "none", "fishing", ours),
            ("blind", "none", "honest", 0.2),
            ("cpl", "gaussian", "honest", ours),
        )
    ]
    table, spec = pd.concat(tables), parse("metric", metric)
    summary = summarise_spec(table, spec)
    assert worse_than_blind(summary, spec).tolist() == [worse, False, False]


def test_costs_are_not_compared_with_blind(scored: Scored):
    tables = [scored("seconds", [value], attack=a) for a, value in (("cpl", 9.0), ("blind", 0.1))]
    table, spec = pd.concat(tables), parse("metric", "seconds")
    assert not worse_than_blind(summarise_spec(table, spec), spec).any()
