from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gleak.assessment.answer import inferred, meaning
from gleak.assessment.deployment import Deployment
from gleak.assessment.findings import Mean, MeasuredEpsilon
from gleak.assessment.member_results import Inferred, rate_of
from gleak.assessment.resolved import RateThreshold, Resolved
from gleak.core.registry import parse
from gleak.studies.cell import Cell
from tests.assessment.test_exposure import CELL, rows

Resolve = Callable[..., Resolved]
KEYS = {"model": "lenet", "data": "digits"}
COSINE = "gradient_cosine+candidates=100"


def table(found: Sequence[float], areas: Sequence[float], defense: str) -> pd.DataFrame:
    """Scores of clients of one sample each."""
    tables = [rows(COSINE, [[v] for v in found], "tpr"), rows(COSINE, [[v] for v in areas], "auc")]
    return pd.concat(tables).assign(defense=defense)


def measured(**tables: pd.DataFrame) -> Any:
    """What a run left of the grid of members, by defence."""
    nothing = rows("best", [])
    cells = [Cell.parse({**CELL, "defense": name, "attack": COSINE}) for name in tables]
    member = np.zeros((20, 100), dtype=bool)
    member[:, 0] = True
    scores = pd.concat([nothing, *tables.values()])
    return SimpleNamespace(
        scores=lambda grid: scores if grid == "members" else nothing,
        cells=lambda grid: cells if grid == "members" else [],
        members=lambda cell: member,
    )


ALL, NONE = table([1] * 20, [1] * 20, "none"), table([0] * 20, [0.2, 0.8] * 10, "topk")


def test_the_deployed_defence_is_first_and_has_a_sentence(resolved: Resolve) -> None:
    found = Inferred.of(resolved(defense="topk"), measured(none=ALL, topk=NONE), False)
    assert [(row.defense, row.deployed) for row in found.took_part] == [
        ("topk", True),
        ("none", False),
    ]
    (sentence,) = inferred(found)
    assert (sentence.kind, sentence.decides) == ("members", False)
    assert sentence.sentence == (
        "Members: of 20 records that took part the server tells 0% (95% interval 0% to 17%) from "
        "1980 others, at one false positive in a hundred, by gradient_cosine; by chance 1%: chance "
        "may explain it. The area under the ROC curve is 0.5 [0.369, 0.631], by chance 0.5."
    )


@pytest.mark.parametrize(
    ("thresholds", "none", "topk"),
    [
        ({}, "exposed", "inconclusive"),  # 17% may be found
        ({"tpr_at_1": 0.05}, "exposed", "inconclusive"),
        ({"tpr_at_1": 0.3}, "exposed", "not found"),
        ({"auc": 0.9}, "exposed", "not found"),
        ({"auc": 0.9, "tpr": 0.05}, "exposed", "inconclusive"),
    ],
)
def test_verdicts_are_by_intervals(
    resolved: Resolve, thresholds: dict[str, float], none: str, topk: str
) -> None:
    deployment = resolved(defenses=["topk"], thresholds=thresholds)
    found = Inferred.of(deployment, measured(none=ALL, topk=NONE), False)
    assert [row.verdict for row in found.took_part] == [none, topk]
    (sentence,) = inferred(found)
    assert sentence.decides == bool(thresholds)
    assert str(deployment.thresholds[0]) == "ssim ≥ 0.5", "thresholds on rates leave the default"


def test_a_method_that_finds_nothing_without_a_defence_cannot_tell(resolved: Resolve) -> None:
    weak = table([0] * 20, [0.2, 0.8] * 10, "none")
    deployment = resolved(defenses=["topk"], thresholds={"tpr": 0.3})
    found = Inferred.of(deployment, measured(none=weak, topk=NONE), False)
    assert {row.verdict for row in found.took_part} == {"inconclusive"}
    assert "no more than chance without any defence" in found.took_part[1].doubts[0].text
    assert meaning("inconclusive", inferred(found)).endswith("cannot be told")


def test_clients_that_are_too_few_for_an_interval_are_not_taken_for_chance(
    resolved: Resolve,
) -> None:
    found = Inferred.of(resolved(), measured(none=table([1] * 2, [1] * 2, "none")), False)
    (row,), (sentence,) = found.took_part, inferred(found)
    assert (row.verdict, row.tpr.value, row.tpr.low) == ("inconclusive", 1, None)
    assert "tells 100% from" in sentence.sentence
    assert "clients are too few for an interval" in sentence.sentence
    assert [doubt.text.endswith("too few for an interval") for doubt in row.doubts] == [True]


def test_captures_that_contradict_the_description_give_no_verdict(resolved: Resolve) -> None:
    found = Inferred.of(resolved(), measured(none=ALL), True)
    assert [row.verdict for row in found.took_part] == ["inconclusive"]


def captured(chances: Sequence[float], **tables: pd.DataFrame) -> Any:
    """What a run left of simulated clients, and of a capture of clients with these p-values."""
    levels = {"training": "captured+capture=hand", "client": "captured+capture=hand"}
    cell = Cell.parse({**CELL, **levels, "attack": "gradient_cosine+candidates=20"})
    chance = rows(COSINE, [[p] for p in chances], "p_value").assign(defense="none")
    told = table([float(p < 0.1) for p in chances], [1 - p for p in chances], "none")
    scores = pd.concat([told, chance]).assign(**levels, attack=str(cell.attack))
    member = np.arange(20)[None].repeat(len(chances), 0) < 1
    left = measured(**tables)
    return SimpleNamespace(
        scores=lambda grid: scores if grid == "captured_members" else left.scores(grid),
        cells=lambda grid: [cell] if grid == "captured_members" else left.cells(grid),
        members=lambda each: member if each == cell else left.members(each),
    )


def test_who_took_part_in_a_capture_has_a_sentence_of_its_own(resolved: Resolve) -> None:
    deployment = replace(resolved(), deployment=Deployment(**{**KEYS, "captures": ["hand"]}))
    found = Inferred.of(deployment, captured([0.01, 0.02, 0.9], none=ALL), False)
    (row,) = found.captured
    assert (row.capture, row.clients, row.members, row.others) == ("hand", 3, 3, 57)
    assert row.by_chance == pytest.approx(0.03), "the least of three"
    assert row.verdict == "exposed"
    simulated, of_capture = inferred(found)
    assert (simulated.clients, of_capture.clients) == ("simulated", "captured")
    assert "of 3 records that took part in hand the server tells 67%" in of_capture.sentence


def test_evidence_of_one_of_many_captures_counts_as_that_of_many(resolved: Resolve) -> None:
    described = Deployment(**{**KEYS, "captures": ["hand"]})
    deployment = replace(resolved(), deployment=described)
    one = captured([0.02], none=ALL)
    (cell,) = one.cells("captured_members")
    one.cells = lambda grid: [cell] * 4 if grid == "captured_members" else []
    for row in Inferred.of(deployment, one, False).captured:
        assert row.by_chance == pytest.approx(0.08)
        assert row.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("thresholds", "chance", "verdict", "remedy"),
    [
        ({}, 0.01, "exposed", []),
        ({}, 0.4, "inconclusive", ["correct", "captures of more"]),
        ({"tpr": 0.5}, 0.01, "exposed", []),
        ({"tpr": 0.5}, 0.09, "inconclusive", ["correct", "captures of more"]),
        ({"tpr": 0.5}, 0.4, "inconclusive", ["correct"]),
    ],
)
def test_what_is_told_of_a_capture_stands_though_it_contradicts_its_description(
    resolved: Resolve,
    thresholds: dict[str, float],
    chance: float,
    verdict: str,
    remedy: list[str],
) -> None:
    described = Deployment(**{**KEYS, "captures": ["hand"]})
    deployment = replace(resolved(thresholds=thresholds), deployment=described)
    (row,) = Inferred.of(deployment, captured([chance], none=ALL), True).captured
    assert row.verdict == verdict
    assert len(row.doubts) == len(remedy)
    for doubt, text in zip(row.doubts, remedy, strict=True):
        assert text in doubt.remedy


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.06, 0.5, "exposed"), (0.0, 0.04, "not found"), (0.0, 0.5, "inconclusive")],
)
def test_a_rate_is_compared_by_its_interval(low: float, high: float, verdict: str) -> None:
    threshold = RateThreshold(parse("metric", "identified"), 0.05)
    assert rate_of(threshold, Mean(value=low, low=low, high=high), 0.01).verdict == verdict
    unknown = Mean(value=None, low=None, high=None)
    assert rate_of(threshold, unknown, 0.01).verdict == "not measured"


def test_more_than_is_proven_refutes_the_accountant() -> None:
    facts: dict[str, Any] = {
        "defense": "dp",
        "deployed": True,
        "audit": "gradient_canaries",
        "delta": 1e-5,
        "confidence": 0.95,
        "measurable": 30.0,
        "accounted": 2.0,
        "threshold": None,
        "verdict": "exposed",
    }
    assert MeasuredEpsilon(**facts, measured=2.1).refutes
    assert not MeasuredEpsilon(**facts, measured=1.9).refutes
    (sentence,) = inferred(Inferred([], [], [], [MeasuredEpsilon(**facts, measured=2.1)]))
    assert "More is measured than proven" in sentence.sentence
    assert sentence.decides
