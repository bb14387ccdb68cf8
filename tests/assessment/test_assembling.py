from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from gleak.assessment.adequacy import Adequacy
from gleak.assessment.assembling import (
    Exposed,
    captured_rounds,
    may_be_planted,
    members,
    named_labels,
    strongest,
    threat_model,
)
from gleak.assessment.exposure import exposures
from gleak.assessment.generated_study import Effort
from gleak.assessment.resolved import Resolved
from gleak.studies.cell import Cell
from tests.assessment.test_exposure import CELL, LABELS, MSE, SSIM, rows

Resolve = Callable[..., Resolved]


def captured(name: str) -> Cell:
    captured = f"captured+capture={name}"
    return Cell.parse({**CELL, "training": captured, "client": captured})


def found(scores: pd.DataFrame) -> Exposed:
    """What every grid with these scores shows."""
    measured: Any = SimpleNamespace(scores=lambda grid: scores)
    return Exposed(measured, [SSIM], Adequacy(), {}, [])


def test_captures_of_one_training_are_its_rounds() -> None:
    names = ["mine-10", "other-1", "mine-2", "ward-b-3", "ward-b-1", "hand", "hand-a"]
    rounds = captured_rounds(map(captured, names), found(rows("best", [])))
    assert {each.field: [point.number for point in each.points] for each in rounds} == {
        "round of mine": [2, 10],
        "round of ward-b": [1, 3],
    }


def test_leakage_along_rounds_is_that_to_each_attack() -> None:
    cells = [captured("mine-10"), captured("mine-2")]
    values = {
        "mine-10": {"best": [[0.9], [0.2]], "blind": [[0.1], [0.1]]},
        "mine-2": {"best": [[0.1], [0.3]], "blind": [[0.1], [0.1]], "invertgrad": [[1.0], [0.8]]},
    }
    tables = [
        rows(attack, found).assign(
            training=f"captured+capture={name}", client=f"captured+capture={name}"
        )
        for name, attacks in values.items()
        for attack, found in attacks.items()
    ]
    (rounds,) = captured_rounds(cells, found(pd.concat(tables)))
    curves = rounds.curves["ssim"]
    assert [point.number for point in curves.points] == [2, 10]
    above = {name: [row and row.above for row in along] for name, along in curves.attacks.items()}
    assert above == {"best": [0, 1], "invertgrad": [2, None]}
    assert [row.blind.value for row in curves.guesses] == [0.1, 0.1]


def test_the_strongest_attack_is_that_of_each_metric() -> None:
    recovered = {
        "aono": ([[0.9]], [[0.5]]),
        "spear": ([[0.7]], [[0.001]]),
        "blind": ([[0.1]], [[0.4]]),
    }
    tables = [
        rows(attack, values, metric)
        for attack, both in recovered.items()
        for metric, values in zip(("ssim", "mse"), both, strict=True)
    ]
    every = exposures(pd.concat(tables), [SSIM, MSE])
    assert len(every) == 4
    worst = {each.metric: each.attack for each in strongest(every)}
    assert worst == {"ssim": "aono", "mse": "spear"}


def test_labels_of_simulated_and_captured_clients_are_apart() -> None:
    values = {"deployed": [[1.0], [1.0]], "captured": [[0.0], [1.0]]}
    nothing = rows("best", [])
    tables = {
        grid: pd.concat([rows("best", each, LABELS), rows("blind", each, LABELS)])
        for grid, each in values.items()
    }
    measured: Any = SimpleNamespace(scores=lambda grid: tables.get(grid, nothing), label_guess=0.1)
    shares = [(each.attack, each.clients, each.share.value) for each in named_labels(measured)]
    assert shares == [("best", "simulated", 1.0), ("best", "captured", 0.5)]


@pytest.mark.parametrize(
    ("named", "clients", "guess", "verdict"),
    [
        (1.0, 10, 0.1, "exposed"),
        (1.0, 10, 0.75, "inconclusive"),  # 69% of all clients are compatible with 10 of 10
        (0.5, 10, 0.75, "not found"),
        (1.0, 2, 0.1, "inconclusive"),
    ],
)
def test_labels_are_revealed_if_more_are_named_than_by_a_guess(
    named: float, clients: int, guess: float, verdict: str
) -> None:
    table, nothing = rows("best", [[named]] * clients, LABELS), rows("best", [])
    measured: Any = SimpleNamespace(
        scores=lambda grid: {"deployed": table}.get(grid, nothing), label_guess=guess
    )
    (labels,) = named_labels(measured)
    assert (labels.guess, labels.verdict) == (guess, verdict)


def test_ensembles_have_the_attacks_they_chose_and_the_cost_of_the_choice() -> None:
    """Of three clients; nothing was proposed where there is no value."""
    values = {
        "chosen+attack=aono": [1.0, math.nan, 1.0],
        "chosen+attack=cpl": [0.0, 1.0, 0.0],
        "chosen+attack=spear": [math.nan, 0.0, math.nan],
        "choice_cost": [0.0, math.nan, 0.5],
    }
    table = pd.concat([rows("best", [[v] for v in own], name) for name, own in values.items()])
    nothing = rows("best", [])
    measured: Any = SimpleNamespace(scores=lambda grid: {"deployed": table}.get(grid, nothing))
    listed = list(members(measured))
    assert {(each.attack, each.clients) for each in listed} == {("best", "simulated")}
    assert [(each.member, each.chosen, each.proposed, each.cost) for each in listed] == [
        ("aono", 2, 2, 0.25),
        ("cpl", 1, 3, None),
        ("spear", 0, 1, None),
    ]


def test_summed_updates_are_those_of_several_clients(resolved: Resolve) -> None:
    summed = "secure_aggregation+clients=2"
    facts = threat_model(
        resolved(client={"batch_size": 4}, defenses=[summed, "topk"]), Effort(5, 100)
    )
    groups = {each.name: each.text for each in facts if each.name.startswith("client under")}
    assert list(groups) == [f"client under {summed}"]
    assert groups[f"client under {summed}"].startswith("2 clients")


def test_a_planted_layer_is_named_where_it_would_suit(resolved: Resolve) -> None:
    assert may_be_planted(resolved(model="lenet"))
    assert not may_be_planted(resolved(model="planted+model=lenet"))
    assert not may_be_planted(resolved(model="mlp", data="breast_cancer"))
