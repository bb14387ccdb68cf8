from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import binomtest

from gleak.assessment.adequacy import (
    FEWEST_CLIENTS,
    Adequacy,
    budget_share,
    verdict_of,
    worst,
)
from gleak.assessment.findings import Exposure, Mean
from gleak.core.registry import parse

CELL = "digits/lenet/untrained/honest/{client}/{defense}/{attack}"


def exposure(
    above: int = 0,
    clients: int = 20,
    gain: float = 0.2,
    attack: str = "best",
    defense: str = "none",
    client: str = "fedsgd",
) -> Exposure:
    """Nothing found by a strong attack, unless something else is given."""
    ends = binomtest(above, clients).proportion_ci(0.95, method="exact")
    share = Mean(value=above / clients, low=ends.low, high=ends.high)
    few = clients < 3
    return Exposure(
        cell=CELL.format(client=client, defense=defense, attack=attack),
        attack=attack,
        metric="ssim",
        threshold=0.5,
        better="higher",
        clients=clients,
        above=above,
        share=share,
        samples=share,
        attacked=Mean(value=0.3, low=0.2, high=0.4),
        blind=Mean(value=0.1, low=0.1, high=0.1),
        gain=Mean(value=gain, low=None if few else gain - 0.1, high=None if few else gain + 0.1),
        losses=[],
        verdict="exposed" if 2 * above >= clients else "partly exposed" if above else "not found",
    )


def judged(one: Exposure, *controls: Exposure, contradicted: bool = False) -> tuple[str, list[str]]:
    """The verdict, and the first word that tells each doubt from others."""
    (found,) = Adequacy(controls, contradicted).judged([one])
    words = ("guess", "budget", "half of all clients", "captured updates")
    return found.verdict, [word for doubt in found.doubts for word in words if word in doubt.text]


@pytest.mark.parametrize(
    ("facts", "verdict", "doubts"),
    [
        ({}, "not found", []),
        ({"gain": 0.05}, "inconclusive", ["guess"]),
        ({"attack": "best+budget=300"}, "inconclusive", ["budget"]),
        ({"attack": "best+budget=2400"}, "not found", []),
        ({"attack": "spear"}, "not found", []),
        ({"clients": 5}, "inconclusive", ["half of all clients"]),
        ({"clients": FEWEST_CLIENTS}, "not found", []),
        ({"clients": 2, "gain": -0.1}, "inconclusive", ["guess", "half of all clients"]),
        ({"above": 1, "gain": -0.1, "attack": "best+budget=1"}, "partly exposed", []),
        ({"above": 20, "clients": 20, "attack": "best+budget=1"}, "exposed", []),
    ],
)
def test_nothing_found_says_something_if_the_attack_could_have_found_it(
    facts: dict[str, Any], verdict: str, doubts: list[str]
) -> None:
    assert judged(exposure(**facts)) == (verdict, doubts)


def test_a_defence_is_compared_with_the_same_clients_without_it() -> None:
    hidden = exposure(gain=-0.1, defense="dp")
    assert judged(hidden, exposure(20)) == ("not found", [])
    assert judged(hidden, exposure(gain=-0.1)) == ("inconclusive", ["guess"])
    assert judged(hidden, exposure(20, client="fedsgd+batch_size=2"))[0] == "inconclusive"
    assert judged(hidden)[0] == "inconclusive"


def test_captures_are_compared_with_simulated_clients() -> None:
    captured = exposure(gain=-0.1, client="captured+capture=hand")
    assert judged(captured, exposure(20)) == ("not found", [])
    assert judged(captured, exposure(gain=-0.1))[0] == "inconclusive"


def test_a_contradiction_leaves_what_is_recovered_of_captured_clients_alone() -> None:
    doubts = ["captured updates"]
    assert judged(exposure(20), contradicted=True) == ("inconclusive", doubts)
    captured = exposure(20, client="captured+capture=hand")
    assert judged(captured, contradicted=True) == ("exposed", [])
    nothing = exposure(client="captured+capture=hand")
    assert judged(nothing, contradicted=True) == ("inconclusive", doubts)


def test_one_attack_that_is_strong_enough_decides() -> None:
    strong, weak = exposure(), exposure(attack="best+budget=1")
    attacks = Adequacy().judged([weak, strong])
    assert [each.verdict for each in attacks] == ["inconclusive", "not found"]
    assert verdict_of(attacks) == "not found"
    assert verdict_of([*attacks, exposure(1)]) == "partly exposed"
    assert verdict_of([]) == "not measured"
    assert worst(["not found", "inconclusive"]) == "inconclusive"
    assert worst(["inconclusive", "partly exposed"]) == "partly exposed"


@pytest.mark.parametrize(
    ("attack", "share"),
    [("best", 1), ("spear", 1), ("invertgrad+iterations=480", 0.1), ("cpl", 1)],
)
def test_the_share_of_a_budget_is_that_of_its_default(attack: str, share: float) -> None:
    assert budget_share(parse("attack", attack)) == pytest.approx(share)
