"""Summaries of attacks, compared with their components."""

from __future__ import annotations

from contextlib import nullcontext
from typing import get_args

import pytest

from gleak.attacks.base import LABELS, AttackSpec, AttackSummary
from gleak.attacks.matching.parts import LabelRule
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from gleak.studies.cell import Cell

ATTACKS = load("attack")


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


@pytest.mark.parametrize(
    ("text", "terms", "labels"),
    [
        ("invertgrad", ("total variation", "values in [0, 1]"), "by counting"),
        ("invertgrad+tv=0", ("values in [0, 1]",), "by counting"),
        ("gm+tv=0+box=false", (), "optimised"),
        ("dlg", (), "optimised"),
        ("idlg", (), "one each, by sign"),
        ("cpl+alpha=1", ("label term",), "by counting"),
        ("cpl+labels=known", (), "granted"),
        ("agic+tv=0", ("layer weights", "values in [0, 1]"), "one each, by least entry"),
        ("fishing+tv=0", ("values in [0, 1]",), "by crafted class"),
        ("cpa", ("total variation", "dependence"), "by counting"),
        ("cpa+tv=0", ("dependence",), "by counting"),
        ("fi+box=false", ("total variation",), "by counting"),
        ("sparse_fi+tv=0", ("values in [0, 1]",), "one each, by derivatives"),
    ],
)
def test_terms_without_weight_are_left_out(text: str, terms: tuple[str, ...], labels: str) -> None:
    assert (summary_of(text).terms, summary_of(text).labels) == (terms, labels)


def test_searches_stand_in_the_order_in_which_they_run() -> None:
    assert summary_of("cpa_fi").losses == ("negentropy", "cosine of embeddings")
    assert summary_of("cpa_fi_gm").labels == "optimised"
    assert summary_of("rogs").losses == ("l2", "norm and LPIPS of images")
    assert summary_of("rogs+lpips=0").losses[1] == "norm of images"


@pytest.mark.parametrize("name", ATTACKS)
def test_local_steps_are_refused_by_those_who_say_so(name: str, fitting_model) -> None:
    """One step through the same client is taken by all."""
    spec = ATTACKS[name]()
    levels = {"attack": name, "crafting": spec.crafting or "honest"}
    client = "epochs" if spec.joins_epochs else "fedavg"
    levels["model"] = fitting_model(**levels, client=client)
    steps = {**levels, "client": f"{client}+local_steps=2", "dataset": "digits"}
    steps |= {"training": "untrained", "defense": "none"}
    fault = pytest.raises(IncompatibleError, match="needs the gradient of one step")
    with nullcontext() if spec.takes_local_steps else fault:
        Cell.parse(steps)
