"""Attacks of a grid that refer to a search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.studies.axis_labels import check_axis
from gleak.studies.grid import Grid
from gleak.studies.search.declaration import Declaration, SpecSearch, read_search
from tests.studies.search.conftest import DECLARED
from tests.studies.test_grid import BASE, attacks, expanded, grid, proxies

REFERENCE = {"search": "weights"}


def tuned(chosen: str | None = None, attack: str = "cpl+alpha=0.5") -> dict[str, SpecSearch]:
    """Return a search with its adopted result."""
    declared = {**DECLARED, "attack": attack, "ranges": {"alpha": {"low": 0, "high": 10}}}
    search = read_search("weights", Declaration(**declared))
    return {"weights": replace(search, chosen=chosen and parse("attack", chosen))}


def searched(attack: Any, searches: dict[str, SpecSearch], **fields: Any) -> Grid:
    """Return a grid of one dataset and defence, with attacks that refer to searches."""
    written = {**BASE, "dataset": "mnist", "defense": "none", "attack": attack, **fields}
    return expanded(written, searches=searches)


@pytest.mark.parametrize(
    ("chosen", "expected"), [(None, "cpl+alpha=0.5"), ("cpl+alpha=3", "cpl+alpha=3")]
)
def test_an_attack_of_a_search_is_the_chosen_one_or_else_the_base(
    chosen: str | None, expected: str
):
    found = searched([REFERENCE, "dlg"], tuned(chosen))
    assert attacks(found) == [expected, "dlg", "blind"]
    assert [(str(attack), one.name) for attack, one in found.searches.items()] == [
        (expected, "weights")
    ]
    assert attacks(searched(REFERENCE, tuned(chosen), controls=[])) == [expected]
    assert not grid().searches


def test_fields_are_changed_after_a_search():
    found = searched({**REFERENCE, "iterations": 50, "start": "dark"}, tuned("cpl+alpha=3"))
    assert attacks(found)[0] == "cpl+iterations=50+start=dark+alpha=3"


@pytest.mark.parametrize("chosen", [None, "cpl+alpha=3"])
def test_what_a_search_chose_is_called_as_what_it_began_with(chosen: str | None):
    """Names in a study stay valid after adoption."""
    found = searched(
        [{**REFERENCE, "iterations": 50}, "cpl"],
        tuned(chosen),
        labels={"cpl+alpha=0.5": "tuned", "cpl": "CPL"},
        exclude=[{"attack": "cpl+iterations=50+alpha=0.5", "dataset": "mnist"}],
        client=["fedsgd", "fedsgd+batch_size=2"],
        zip=[["client", "attack"]],
        controls=[],
    )
    assert attacks(found) == ["cpl"]
    kept = searched(
        [{**REFERENCE, "iterations": 50}, "cpl"],
        tuned(chosen),
        labels={"cpl+alpha=0.5": "tuned", "cpl": "CPL"},
        proxy_for={"cpl+iterations=50+alpha=0.5": "cpl+alpha=0.5"},
    )
    value = attacks(kept)[0]
    spec = parse("attack", value)
    assert kept.names.label("attack", spec) == "tuned"
    assert kept.names.resolve("attack", "cpl+alpha=0.5") == spec
    assert proxies(kept) == {"attack": {value: "cpl+alpha=0.5"}}
    check_axis("attack.alpha", kept.names)


@pytest.mark.parametrize("chosen", [None, "cpl+alpha=0.5"])
def test_a_search_may_choose_what_is_there_already(chosen: str | None):
    found = searched(["cpl+alpha=0.5", REFERENCE], tuned(chosen))
    assert attacks(found) == ["cpl+alpha=0.5", "blind"]
    assert found.names.values["attack"] == ("cpl+alpha=0.5", "blind", "truth")
    assert len(attacks(searched(["cpl+alpha=0.5", REFERENCE], tuned("cpl+alpha=3")))) == 3
    with pytest.raises(SpecError, match=r"the cell .*dlg is there more than once"):
        searched(["dlg", "dlg", REFERENCE], tuned(chosen))


@pytest.mark.parametrize(
    ("attack", "fault"),
    [
        ({"search": "wieghts"}, "axis 'attack': search 'wieghts': .*did you mean 'weights'"),
        ({"search": "weights", "iteratoins": 5}, "'weights': .*'iteratoins'; did .*'iterations'"),
        ({"search": "weights", "alpha": -5}, "search 'weights': .*'alpha' = -5"),
    ],
)
def test_references_that_lead_nowhere_name_their_place(attack: dict[str, Any], fault: str):
    with pytest.raises(SpecError, match=f"study 's', scale 'paper', .*{fault}"):
        searched(attack, tuned())


@pytest.mark.parametrize(
    "fields", [{"attack": {"serach": "weights"}}, {"attack": [3]}, {"defense": REFERENCE}]
)
def test_only_attacks_come_from_searches(fields: dict[str, Any]):
    with pytest.raises((ValueError, SpecError), match=next(iter(fields))):
        expanded({**BASE, **fields})


def test_what_a_search_chose_is_not_reported_on_the_split_it_chose_on():
    with pytest.raises(SpecError, match=r"client fedsgd.split=train draws from split=train"):
        searched([REFERENCE], tuned(), client="fedsgd+split=train")
    assert searched(["cpl"], tuned(), client="fedsgd+split=train").cells
