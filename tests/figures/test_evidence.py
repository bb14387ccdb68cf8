from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.core.registry import parse
from gleak.figures.evidence import (
    Evidence,
    collect,
    estimate,
    fill_with_blind,
    judge,
    measure,
    needed,
    shared_batches,
)
from gleak.figures.intervals import Estimate, Interval, Means, Medians
from gleak.studies.claims import ClaimedRange, Expectation, sort_of
from tests.score_tables import MakeCell, Scored

COMMON = {"id": "a", "grid": "g", "claim": "c", "source": "s"}
SAME = [
    {"defense": "gaussian"},
    {"attack": "dlg"},
    {"model": "lenet+activation=relu"},
    {"training": "central"},
    {"client": "fedsgd+victims=20"},
    {"client": "fedsgd+victims=20+repeats=10"},
    {"client": "fedavg+local_steps=4"},
]
OTHER = [
    {"dataset": "photos"},
    {"client": "fedsgd+batch_size=2"},
    {"client": "fedsgd+labels=unique"},
    {"client": "fedsgd+classes=2"},
    {"client": "fedsgd+split=train"},
    {"client": "captured"},
]


def claim(**fields: Any) -> Expectation:
    return sort_of(fields)(**{**COMMON, "metric": "mse", **fields})


@pytest.mark.parametrize("levels", [*SAME, *OTHER], ids=str)
def test_cells_share_victims_if_dataset_and_draw_are_equal(cell: MakeCell, levels: dict[str, str]):
    assert (shared_batches(cell()) == shared_batches(cell(**levels))) is (levels in SAME)


def test_networks_of_one_architecture_are_paired(cell: MakeCell):
    ours, retrained, other = (
        shared_batches(cell(**levels).upto("training"))
        for levels in ({}, {"training": "central"}, {"model": "mlp"})
    )
    assert ours == retrained != other


def compare(tables: list[pd.DataFrame], **fields: Any) -> Estimate | None:
    """The second cell's mean minus the first's, on some scores."""
    judged = claim(along="attack", order=["a", "b"], **fields)
    cells = [table["cell"].iloc[0] for table in tables]
    measured = measure(judged, pd.concat(tables))
    return estimate(judged.comparisons[0], [measured.all.get(each) for each in cells])


def groups_of(estimated: Estimate | None) -> list[list[float]]:
    assert isinstance(estimated, Medians)
    return [group.tolist() for group in estimated.groups]


def test_differences_on_shared_victims_are_paired(scored: Scored):
    """Large differences between victims do not matter, nor does a victim that one cell lacks."""
    easy = scored("mse", [[10.0], [20.0], [30.0], [40.0]])
    hard = scored("mse", [[11.0], [22.0], [31.0]], attack="dlg")
    assert groups_of(compare([easy, hard])) == [[1.0, 2.0, 1.0]]


@pytest.mark.parametrize("client", ["fedsgd", "fedsgd+batch_size=2"])
def test_a_factor_multiplies_what_is_subtracted(scored: Scored, client: str):
    fast = scored("mse", [[10.0], [20.0]])
    slow = scored("mse", [[26.0], [51.0]], attack="dlg", client=client)
    compared = compare([fast, slow], factor=2.5)
    assert compared is not None
    assert compared.value == 1.0


def test_other_victims_are_compared_as_groups(scored: Scored):
    one = scored("mse", [[10.0], [20.0], [30.0]])
    two = scored("mse", [[11.0, 13.0], [22.0, 24.0]], client="fedsgd+batch_size=2")
    assert groups_of(compare([one, two])) == [[12.0, 23.0], [10.0, 20.0, 30.0]]


def test_repeats_are_averaged_and_paired_with_single_victims(scored: Scored):
    repeated = "fedsgd+victims=4+repeats=2"
    once = scored("mse", [[1.0], [2.0]])
    twice = scored("mse", [[3.0], [5.0], [6.0], [8.0]], client=repeated, attack="dlg")
    assert groups_of(compare([once, twice])) == [[3.0, 5.0]]


def test_victims_recovered_by_one_attack_only_are_not_compared(scored: Scored):
    tables = []
    for attack, speeds, found in (
        ("cpl", [10.0, 20.0, 30.0], [[1.0], [1.0], [0.0]]),
        ("dlg", [15.0, 99.0, 40.0], [[1.0], [0.0], [1.0]]),
    ):
        success = scored("success_content", found, attack=attack)
        tables.append(pd.concat([scored("iterations", speeds, attack=attack), success]))
    both = compare(tables, metric="iterations", over="successful")
    assert both is not None
    assert (both.value, both.n) == (5.0, 1)


def lost(table: pd.DataFrame, *victims: int) -> pd.DataFrame:
    """The same scores with victims whose sample was not found."""
    gone = table["victim"].isin(victims)
    return table.assign(
        value=table["value"].where(~gone), status=table["status"].where(~gone, "unmatched")
    )


def test_samples_not_found_count_as_blind_and_are_left_out_beside(scored: Scored, cell: MakeCell):
    tables = [
        scored("mse", [[0.2], [0.3], [0.4]], attack="blind", crafting="honest"),
        lost(scored("mse", [[0.1], [0.1], [0.1]], attack="fishing", crafting="fishing"), 1, 2),
    ]
    scores = pd.concat(tables)
    filled = fill_with_blind(scores, parse("metric", "mse"))
    assert filled.loc[filled["attack"] == "fishing", "value"].tolist() == [0.1, 0.3, 0.4]
    (evidence,) = collect(
        bound := claim(at_most=0.5),
        [cell(attack="fishing", crafting="fishing")],
        measure(bound, scores),
    )
    assert evidence.found is not None
    assert (evidence.estimate.value, evidence.estimate.n) == (0.3, 3)
    assert (evidence.found.value, evidence.found.n) == (0.1, 1)


def test_without_blind_samples_not_found_are_left_out(scored: Scored):
    table = lost(scored("mse", [[0.1], [0.2]]), 1)
    assert fill_with_blind(table, parse("metric", "mse"))["value"].tolist() == [0.1]


def test_unavailable_values_are_not_filled(scored: Scored):
    table = pd.concat(
        [
            scored("lpips", [[0.2]], attack="blind"),
            scored("lpips", [[math.nan]], "unavailable"),
        ]
    )
    assert set(fill_with_blind(table, parse("metric", "lpips"))["attack"]) == {"blind"}


def test_a_missing_cell_leaves_no_evidence(scored: Scored):
    table = scored("mse", [[0.1]])
    judged = claim(along="attack", order=["a", "b"])
    assert collect(judged, [table["cell"].iloc[0], None], measure(judged, table)) == []
    assert judge([]) == "no data"


@pytest.mark.parametrize(("factor", "effect"), [(1, 3.0), (0.5, 4.0)])
def test_the_papers_number_is_from_one_figure(scored: Scored, factor: float, effect: float):
    table = scored("mse", [[0.1], [0.3]])
    judged = claim(along="attack", order=["a", "b"], factor=factor)
    published = [[1.0, math.nan], [2.0, 5.0], [7.0, 8.0]]
    (evidence,) = collect(judged, [table["cell"].iloc[0]] * 2, measure(judged, table), published)
    assert evidence.paper == effect


@pytest.fixture
def around() -> Callable[..., Evidence]:
    """Evidence on a claim that a mean is above zero, from ten values around another mean."""
    values = np.arange(10.0) - 4.5
    comparison = ClaimedRange(0, low=0.0, strict=True)

    def make(mean: float, n: int = 10) -> Evidence:
        estimated = Means((mean + values[-n:] - values[-n:].mean(),))
        return Evidence(comparison, estimated, None, math.nan)

    return make


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ([5.0], "holds"),
        ([-5.0], "fails"),
        ([1.0], "cannot tell"),
        ([5.0, 5.0], "holds"),
        ([5.0, 1.0], "cannot tell"),
        ([5.0, -5.0], "fails"),
        ([1.0, -5.0], "fails"),
    ],
)
def test_a_claim_is_all_of_its_comparisons(
    around: Callable[..., Evidence], means: list[float], verdict: str
):
    assert judge([around(mean) for mean in means]) == verdict


def test_an_interval_ends_at_the_limits_of_the_metric(around: Callable[..., Evidence]):
    evidence = replace(around(1.0), limits=Interval(0.0, 1.0))
    assert evidence.interval == (0.0, 1.0)
    low, high = evidence.estimate.interval()
    assert low < 0 < 1 < high
    assert around(1.0).interval == (low, high)


def test_one_of_many_comparisons_must_fail_more_clearly(around: Callable[..., Evidence]):
    """An interval that is just below zero at 95% is not at 99%."""
    _, high = around(0.0).estimate.interval()
    evidence = around(-1.05 * high)
    assert judge([evidence]) == "fails"
    assert judge([evidence, *[around(5.0)] * 4]) == "cannot tell"


def test_below_six_victims_nothing_is_told(around: Callable[..., Evidence]):
    assert [judge([around(100.0, n)]) for n in (5, 6)] == ["cannot tell", "holds"]


def test_the_number_needed_is_that_of_the_whole_claim(around: Callable[..., Evidence]):
    alone, clear = needed([around(1.0)]), needed([around(5.0)])
    assert alone is not None and clear is not None and alone > clear
    assert needed([around(1.0), around(5.0)]) == alone
    assert needed([around(0.0)]) is None


def test_closeness_is_an_equivalence_test():
    near, far = ClaimedRange(1, 0, low=-0.5, high=0.5), replace(ClaimedRange(1, 0), low=2.0)
    values = np.linspace(-0.4, 0.4, 30)
    estimated = Means((values,))
    assert estimated.interval() < Interval(0.5, 0.5)
    assert judge([Evidence(near, estimated, None, math.nan)]) == "holds"
    assert judge([Evidence(near, Means((values + 0.45,)), None, math.nan)]) == "cannot tell"
    assert judge([Evidence(near, Means((values + 1.0,)), None, math.nan)]) == "fails"
    assert judge([Evidence(far, estimated, None, math.nan)]) == "fails"


@pytest.mark.parametrize(
    ("fields", "slack"),
    [
        ({}, 2.0),
        ({"margin": 1}, 2.0),
        ({"within": 1}, 5.0),
        ({"relation": "<=", "margin": 1}, 5.0),
    ],
)
def test_of_a_claimed_difference_half_of_the_papers_is_a_difference(
    fields: dict[str, Any], slack: float, scored: Scored
):
    """Five iterations are no tolerance where the paper's are four; of equality they are."""
    judged = claim(metric="iterations", along="attack", order=["a", "b"], **fields)
    tables = [scored("iterations", [[1.0], [2.0]], attack=name) for name in ("cpl", "dlg")]
    cells = [table["cell"].iloc[0] for table in tables]
    (evidence,) = collect(judged, cells, measure(judged, pd.concat(tables)), [[10.0, 14.0]])
    assert (evidence.paper, evidence.margin) == (4.0, slack)
