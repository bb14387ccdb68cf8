from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from types import SimpleNamespace

import pytest
from torch import nn

from gleak.assessment.attack_choice import WHY_MEMBER, choose_attacks, main_attacks
from gleak.assessment.resolved import Resolved, model_of
from gleak.core.errors import SpecError
from gleak.core.registry import load, parse

Resolve = Callable[..., Resolved]
CRAFTING = {"kind": "crafting_server"}


def names(resolved: Resolved) -> list[str]:
    return [str(each.attack) for each in choose_attacks(resolved, 4800).chosen]


def test_every_registered_attack_is_run_or_left_out_with_a_reason(resolved: Resolve) -> None:
    choice = choose_attacks(resolved(), 100)
    run = {each.attack.name for each in choice.chosen}
    left_out = {*choice.left_out}
    assert run | left_out == {*load("attack")}
    assert not run & left_out
    assert all([*(each.reason for each in choice.chosen), *choice.left_out.values()])


def hard(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A network without second derivatives, so that gradients cannot be matched."""
    layers = (nn.Linear(prod(shape), 4), nn.Hardsigmoid(), nn.Linear(4, classes))
    return nn.Sequential(nn.Flatten(), *layers)


@pytest.fixture
def my_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "my_networks", SimpleNamespace(hard=hard))


@pytest.mark.usefixtures("my_networks")
def test_members_of_best_are_run_where_it_does_not_fit(resolved: Resolve) -> None:
    own = resolved(model="my_networks.hard")
    choice = choose_attacks(own, 100)
    assert "Hardsigmoid" in choice.left_out["best"]
    assert {each.reason for each in choice.chosen} == {WHY_MEMBER}
    members = {each.attack.name for each in choice.chosen}
    assert {"aono", "spear", "singular_vectors"} <= members
    assert not members & {"best", "map", "cpa", "melis", "mkor", "blind"}
    lenet = resolved()
    attacks, misfit = main_attacks(lenet, 100)
    assert [str(each) for each in attacks] == ["best+budget=100"] and misfit is None
    attacks, misfit = main_attacks(lenet.at("model", model_of("my_networks.hard")), 100)
    assert {attack.name for attack in attacks} == members
    assert misfit is not None and "attack best" in misfit and "Hardsigmoid" in misfit


def test_a_crafting_server_runs_what_the_network_allows(resolved: Resolve) -> None:
    found = choose_attacks(resolved(model="lenet5", attacker=CRAFTING), 4800)
    assert [(each.attack.name, each.crafting) for each in found.crafted] == [
        ("fishing", "fishing"),
        ("mkor", "mkor"),
    ]
    left_out = choose_attacks(resolved(attacker=CRAFTING), 4800).left_out
    assert "model lenet has one" in left_out["mkor"]


def test_what_is_granted_is_used_or_refused(resolved: Resolve) -> None:
    assert "invertgrad+labels=known" in names(resolved(attacker={"grants": ["labels"]}))
    grants = {"grants": ["batch_norm_statistics"]}
    normalised = resolved(model="resnet20", attacker=grants)
    assert "gradinversion+statistics=granted" in names(normalised)
    with pytest.raises(SpecError, match=r"attacker.grants: .* model lenet has no such layer; use"):
        names(resolved(attacker=grants))


def test_an_honest_server_runs_best_and_named_attacks_once(resolved: Resolve) -> None:
    assert names(resolved()) == ["best"]
    assert names(resolved(attacks=["best", "agic", "agic"])) == ["best", "agic"]


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        ("melis", "melis needs .*add it to attacker.grants"),
        ("fishing", "fishing needs .*set attacker.kind"),
        ("spear", "attack spear needs a first layer that is dense"),
    ],
)
def test_a_named_attack_must_be_possible(resolved: Resolve, attack: str, reason: str) -> None:
    with pytest.raises(SpecError, match=f"attacks: {reason}"):
        names(resolved(attacks=[attack]))


def test_members_of_best_and_what_supersedes_others_are_reasons(resolved: Resolve) -> None:
    left_out = choose_attacks(resolved(), 100).left_out
    assert (
        left_out["map"]
        == left_out["invertgrad"]
        == ("best runs it where it suits the network and the update")
    )
    assert left_out["cpl"] == parse("attack", "cpl").superseded
