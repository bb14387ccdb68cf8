from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gleak.assessment import findings
from gleak.assessment.adequacy import Adequacy
from gleak.assessment.answer import advice, answer
from gleak.assessment.findings import DefenseCost, Exposure, Mean
from gleak.assessment.resolved import Resolved
from tests.assessment.test_adequacy import exposure
from tests.assessment.test_report_page import finding, named

Resolve = Callable[..., Resolved]


def judged(*exposures: Exposure) -> list[Exposure]:
    return Adequacy([exposure(20)]).judged(exposures)


def cost(defense: str, above: int, accuracy: float | None = 0.8, **facts: Any) -> DefenseCost:
    """A defence under which so many of 20 clients are above the threshold."""
    shown: dict[str, Any] = {
        "kilobytes": 10.0,
        "perturbation": Mean(value=0.1, low=None, high=None),
        "guarantees": {},
        **facts,
    }
    rows = judged(exposure(above, defense=defense))
    return DefenseCost(
        defense=defense, deployed=False, exposures=rows, labels=[], accuracy=accuracy, **shown
    )


def test_each_kind_of_clients_and_of_findings_has_a_sentence() -> None:
    own, weak = exposure(1), exposure(attack="best+budget=300", client="captured+capture=a")
    found = list(answer({"simulated": judged(own), "captured": judged(weak)}, [named("simulated")]))
    kinds = [(each.kind, each.clients, each.verdict, each.decides) for each in found]
    assert kinds == [
        ("samples", "simulated", "partly exposed", True),
        ("samples", "captured", "inconclusive", True),
        ("labels", "simulated", "exposed", False),
    ]
    assert found[0].sentence.startswith("Samples: from 1 of 20 simulated clients (5%; 95% interval")
    assert "by a guess 0.1" in found[0].sentence
    assert "16% of its default budget" in found[1].doubts[0].text
    assert found[2].sentence == (
        "Labels: the server names those of simulated clients (60%; 95% interval 15% to 95%); a "
        "guess names 10%."
    )


def texts(
    resolved: Resolved, costs: Sequence[DefenseCost], verdict: findings.Verdict = "exposed"
) -> list[str]:
    return list(advice(resolved, costs, [finding(verdict)]))


def test_defences_that_help_are_named_with_their_cost_the_cheapest_first(resolved: Resolve) -> None:
    costs = [
        cost("none", 20, accuracy=0.9),
        cost("dp+sigma=0.1", 0, accuracy=0.5, guarantees={"epsilon_prv": 284.0}),
        cost("topk", 0, kilobytes=2.5),
        cost("quantize", 15),
        cost("signsgd", 1),
    ]
    first, second, half, some = texts(resolved(), costs)
    assert first == (
        "Under topk nothing was found: accuracy 0.8, without it 0.9, 2.5 in place of 10 kB, "
        "nothing is guaranteed."
    )
    assert second.startswith("Under dp (sigma 0.1) nothing was found: accuracy 0.5")
    assert second.endswith("epsilon 284: guarantees practically nothing.")
    assert (half, some) == (
        "Samples of at least half of the clients are still recovered under quantize.",
        "Samples of some clients are still recovered under signsgd.",
    )


def test_where_no_defence_helps_that_is_said_with_what_would_tell(resolved: Resolve) -> None:
    weak = cost("topk", 0).model_copy(
        update={"exposures": judged(exposure(attack="best+budget=300", defense="topk"))}
    )
    assert texts(resolved(), [cost("none", 20), weak]) == [
        "Of none of the compared defences it can be said that nothing is recovered under it.",
        "It cannot be told under topk.",
        "To be able to tell: iterations: 4800.",
    ]


def test_without_defences_some_are_to_be_compared(resolved: Resolve) -> None:
    (text,) = texts(resolved(), [])
    assert "add defenses" in text
    assert texts(resolved(), [], "not found") == []


@pytest.mark.parametrize(
    ("client", "curves", "asked"),
    [
        ({"local_steps": 20, "local_lr": 0.1}, False, True),
        ({"local_steps": 20, "local_lr": 0.1}, True, False),
        ({}, False, False),
    ],
)
def test_many_local_steps_are_followed_back_to_few(
    resolved: Resolve, client: dict[str, Any], curves: bool, asked: bool
) -> None:
    deployment = resolved(client={"batch_size": 4, **client}, curves=curves)
    found = texts(deployment, [], "not found")
    assert any("curves: true" in text for text in found) == asked
    assert not any("curves: true" in text for text in texts(deployment, [], "exposed"))
