from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import pytest

from gleak.core.registry import parse
from gleak.figures.evidence import fill_with_blind, values_by_cell
from gleak.figures.leaks import NO_CONTROL, Finding, find_leaks
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.gates import Gates
from tests.score_tables import LEVELS, Scored

BLIND = 12.0
WEAK, MIDDLE, STRONG = "gaussian+std=1e-3", "gaussian", "gaussian+std=0.1"
GATES = Gates(
    margins={"psnr": 1.0, "mse": 0.1, "identified": 0.1},
    strengths=[[WEAK, MIDDLE, STRONG], ["signsgd"]],
)
SPREAD = np.linspace(-1, 1, 12)
"""Deviations of victims, in dB; their standard error is 0.2 dB."""
Judge = Callable[..., dict[str, Finding]]


@pytest.fixture
def judge(scored: Scored) -> Judge:
    """Findings by defence, from means of PSNR, or from the values of each victim."""

    def judge(
        means: Mapping[str, float | np.ndarray],
        metric: str = "psnr",
        blind: float = BLIND,
        spread: np.ndarray = SPREAD,
    ) -> dict[str, Finding]:
        tables = []
        for number, (defense, mean) in enumerate(means.items()):
            own = np.roll(spread, number)  # cells differ victim by victim
            for attack, values in (("best", mean + own), ("blind", blind + 0 * own)):
                levels = {"defense": defense, "attack": attack, "client": "fedsgd+victims=12"}
                tables.append(scored(metric, [[value] for value in values], **levels))
        return findings(pd.concat(tables), metric, means)

    return judge


def findings(table: pd.DataFrame, metric: str, defenses: Mapping[str, object]) -> dict:
    spec = parse("metric", metric)
    names = AxisLabels.read({**{k: (v,) for k, v in LEVELS.items()}, "defense": tuple(defenses)})
    values = values_by_cell(fill_with_blind(table, spec), spec)
    found = find_leaks(GATES, metric, values, names)
    return {str(cell.defense): finding for cell, finding in found.items()}


def leaks(found: Mapping[str, Finding]) -> dict[str, str]:
    return {defense: finding.leak for defense, finding in found.items()}


def test_what_falls_from_a_leak_to_blind_hides(judge: Judge):
    found = judge({"none": 40.0, WEAK: 30.0, MIDDLE: 14.0, STRONG: 12.2})
    assert leaks(found) == {"none": "leaks", WEAK: "leaks", MIDDLE: "leaks", STRONG: "hides"}
    assert found[STRONG].reason.endswith("leaks")
    assert found[MIDDLE].above.value == pytest.approx(2.0)


def test_without_a_weaker_strength_that_leaks_nothing_hides(judge: Judge):
    """A broken attack, and a defence of one strength."""
    found = judge({"none": 40.0, WEAK: 12.0, STRONG: 12.0, "signsgd": 12.0})
    for defense in (WEAK, STRONG, "signsgd"):
        assert (found[defense].leak, found[defense].reason) == ("cannot tell", NO_CONTROL)


def test_a_cell_without_a_defence_that_leaks_less_than_one_with_is_under_attacked(judge: Judge):
    """What leaks does so all the same, but nothing is said to hide there."""
    found = judge({"none": 20.0, WEAK: 30.0, STRONG: 12.0})
    assert leaks(found) == {"none": "under-attacked", WEAK: "leaks", STRONG: "under-attacked"}
    assert found["none"].reason.startswith("leaks less than under")


def test_a_difference_within_the_interval_or_the_margin_is_none(judge: Judge):
    wide = judge({"none": 40.0, WEAK: 41.5}, spread=10 * SPREAD)
    near = judge({"none": 40.0, WEAK: 40.5})
    assert wide["none"].leak == near["none"].leak == "leaks"


def test_victims_are_paired(judge: Judge):
    """They differ by far more than the two cells do."""
    easy = 20 * SPREAD
    found = judge({"none": 40.0 + easy, WEAK: 43.0 + easy, STRONG: 12.0})
    assert found["none"].leak == "under-attacked"


def test_leakage_that_rises_with_strength_is_marked(judge: Judge):
    """At the weaker strength, whose number is too small; if it does not leak, it has no verdict."""
    found = judge({"none": 40.0, WEAK: 20.0, MIDDLE: 12.0, STRONG: 30.0})
    assert leaks(found) == {
        "none": "leaks", WEAK: "leaks", MIDDLE: "under-attacked", STRONG: "leaks"
    }  # fmt: skip
    assert found[WEAK].reason.startswith("leaks less than under")
    assert not found[STRONG].reason


def test_an_attack_below_blind_counts_as_blind(judge: Judge):
    """Neither its distance from blind nor that from other cells is larger than a guess's."""
    found = judge({"none": 40.0, WEAK: 30.0, MIDDLE: 3.0, STRONG: 12.2})
    assert leaks(found)[MIDDLE] == "hides"
    assert found[MIDDLE].interval == (0.0, 0.0)
    assert leaks(judge({"none": 3.0, STRONG: 12.5}))["none"] == "cannot tell"


def test_an_interval_on_both_sides_of_the_margin_says_nothing(judge: Judge):
    found = judge({"none": 40.0, WEAK: 30.0, STRONG: 13.0})
    assert found[STRONG].leak == "cannot tell"


def test_few_victims_have_no_verdict(judge: Judge):
    found = judge({"none": 40.0, WEAK: 45.0, STRONG: 12.0}, spread=SPREAD[:4])
    assert set(leaks(found).values()) == {"cannot tell"}


def test_errors_are_compared_the_other_way(judge: Judge):
    errors = {"none": 0.01, WEAK: 0.05, STRONG: 0.5}
    found = judge(errors, "mse", blind=0.5, spread=SPREAD / 100)
    assert leaks(found) == {"none": "leaks", WEAK: "leaks", STRONG: "hides"}
    assert found["none"].above.value == pytest.approx(0.49)


def test_success_rates_have_exact_intervals(judge: Judge):
    """Twelve of twelve are not all; none of twelve may still be some."""
    found = judge({"none": 1.0, WEAK: 1.0, STRONG: 0.0}, "identified", blind=0.0, spread=0 * SPREAD)
    assert leaks(found) == {"none": "leaks", WEAK: "leaks", STRONG: "cannot tell"}
    assert found[STRONG].interval.high > 0.2


def test_settings_are_judged_apart_and_need_the_control(scored: Scored):
    tables = []
    for model, mean in (("lenet", 40.0), ("mlp", 3.0)):
        for attack, level in (("best", mean), ("blind", BLIND)):
            values = [[level + each] for each in SPREAD]
            tables.append(scored("psnr", values, model=model, attack=attack))
    values = [[40.0 + each] for each in SPREAD]
    tables.append(scored("psnr", values, model="fc2", attack="best"))
    table = pd.concat(tables)
    found = find_leaks(
        GATES,
        "psnr",
        values_by_cell(table, parse("metric", "psnr")),
        AxisLabels.read({**{k: (v,) for k, v in LEVELS.items()}}),
    )
    assert {str(c.model): f.leak for c, f in found.items()} == {
        "lenet": "leaks",
        "mlp": "cannot tell",
    }
