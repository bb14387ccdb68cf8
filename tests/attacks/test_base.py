"""Summaries of attacks, compared with their components."""

from __future__ import annotations

from typing import get_args

import pytest

from gleak.attacks.base import LABELS, AttackSpec, AttackSummary
from gleak.attacks.cpa import CocktailParty
from gleak.attacks.matching.parts import LabelRule
from gleak.attacks.matching_attack import MatchingAttack
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from gleak.studies.cell import Cell

ATTACKS = load("attack")
MATCHING = sorted(name for name, cls in ATTACKS.items() if issubclass(cls, MatchingAttack))
UNMIXING = sorted(name for name, cls in ATTACKS.items() if issubclass(cls, CocktailParty))
TV, BOX = "total variation", "values in [0, 1]"
LABEL, LAYERS = "label term", "layer weights"


def summary_of(text: str) -> AttackSummary:
    spec: AttackSpec = parse("attack", text)
    return spec.summary()


def test_every_label_rule_is_called_something() -> None:
    assert set(get_args(LabelRule)) == set(LABELS)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_says_what_it_minimises_and_how_it_finds_labels(name: str) -> None:
    said = summary_of(name)
    assert said.labels
    assert bool(said.losses) == bool(said.optimizers)
    assert said.losses or not parse("attack", name).cost().evaluations


@pytest.mark.parametrize("name", MATCHING)
def test_matching_is_told_by_its_parts(name: str) -> None:
    parts = parse("attack", name).parts()
    said = summary_of(name)
    assert (said.losses[0], said.optimizers[0]) == (str(parts.distance), str(parts.optimizer))
    assert len(said.losses) == len(said.optimizers) == (2 if name == "rogs" else 1)
    assert (TV in said.terms, BOX in said.terms) == (parts.total_variation > 0, parts.box)
    assert (LAYERS in said.terms) == (parts.layers is not None)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("invertgrad", (TV, BOX)),
        ("invertgrad+tv=0", (BOX,)),
        ("gm+tv=0+box=false", ()),
        ("cpl+alpha=1", (LABEL,)),
        ("cpa+tv=0", ("dependence",)),
        ("fi+box=false", (TV,)),
    ],
)
def test_terms_without_weight_are_left_out(text: str, terms: tuple[str, ...]) -> None:
    assert summary_of(text).terms == terms


@pytest.mark.parametrize("name", UNMIXING)
def test_unmixing_names_each_weighted_term_once(name: str) -> None:
    weights = parse("attack", name).weights
    nothing = "+".join([name, *(f"{weight}=0" for weight in weights)])
    bare = CocktailParty.unmixing_summary(parse("attack", nothing))
    assert bare.losses == bare.terms == ()
    full = CocktailParty.unmixing_summary(parse("attack", name))
    assert len({*full.losses, *full.terms}) == len(weights)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("dlg", "optimised"),
        ("idlg", "one each, by sign"),
        ("cpl", "by counting"),
        ("cpl+labels=known", "granted"),
        ("fishing", "by crafted class"),
        ("cpa_fi", "by counting"),
        ("cpa_fi_gm", "optimised"),
        ("sparse_fi", "one each, by derivatives"),
    ],
)
def test_labels_are_told_as_the_spec_has_them(text: str, labels: str) -> None:
    assert summary_of(text).labels == labels


def test_searches_stand_in_the_order_in_which_they_run() -> None:
    first = AttackSummary(losses=("a",), terms=("b",), optimizers=("c",), labels="d")
    second = AttackSummary(losses=("e",), terms=("f",), optimizers=("g",), labels="h")
    assert first.then(second) == AttackSummary(
        losses=("a", "e"), terms=("b", "f"), optimizers=("c", "g"), labels="h"
    )
    assert summary_of("cpa_fi").losses == ("negentropy", "cosine of embeddings")


@pytest.mark.parametrize("name", ATTACKS)
def test_local_steps_are_refused_by_those_who_say_so(name: str, fitting_model) -> None:
    """One step through the same client is taken by all."""
    spec = ATTACKS[name]()
    levels = {"attack": name, "crafting": spec.crafting or "honest"}
    client = "epochs" if spec.joins_epochs else "fedavg"
    levels["model"] = fitting_model(**levels, client=client)
    steps = {**levels, "client": f"{client}+local_steps=2", "dataset": "digits"}
    others = {"training": "untrained", "defense": "none"}
    if spec.takes_local_steps:
        Cell.parse({**others, **steps})
    else:
        with pytest.raises(IncompatibleError, match="needs the gradient of one step"):
            Cell.parse({**others, **steps})
