from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest

from gleak.attacks.attacker import SearchCost
from gleak.attacks.base import AttackSpec
from gleak.core.errors import SpecError
from gleak.core.registry import load, parse
from gleak.figures.kinds.attack_table import facts_of
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.figure_spec import FigureData
from tests.score_tables import DrawTwice, make_figure, read_page

LABELS = {"dlg": "DLG", "lbfgs": "L-BFGS", "attack": "method", "total variation": "TV_2"}


def make(*attacks: str, **fields: Any) -> Any:
    return make_figure("attacks", attacks=list(attacks), **fields)


@pytest.fixture
def nothing(nothing_published: pd.DataFrame) -> FigureData:
    return FigureData(pd.DataFrame(), nothing_published, AxisLabels({}))


def test_facts_are_those_of_the_spec():
    found = facts_of(parse("attack", "cpl+start=optimal+labels=known"))
    assert found["attack"] == ["cpl+start=optimal+labels=known"]
    assert found["extra knowledge"] == ["class_sample", "labels"]
    assert found["labels"] == ["granted"]
    assert facts_of(parse("attack", "mkor"))["crafted parameters"] == ["mkor"]
    assert facts_of(parse("attack", "mkor"))["data"] == ["image"]
    assert facts_of(parse("attack", "dlg"))["data"] == ["any"]


def test_what_an_attack_brings_is_told_with_what_it_is_granted(bringing: type[AttackSpec]):
    spec = parse("attack", "bringing+codec=codec~size=64")
    assert facts_of(spec)["extra knowledge"] == ["codec"]
    assert facts_of(bringing())["extra knowledge"] == []
    assert "gleak.knowledge.autoencoder" in make(str(spec)).modules


@pytest.mark.parametrize("name", load("attack"))
def test_every_attack_has_facts_in_the_same_columns(name: str):
    spec = parse("attack", name)
    found = facts_of(spec)
    assert list(found) == list(facts_of(parse("attack", "dlg")))
    assert all(found[key] for key in ("attack", "source", "labels", "optimiser", "local steps"))
    if spec.cost().evaluations:
        assert found["optimiser"] != ["none, no iterations"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("invertgrad", "as one batch"),
        ("invertgrad+client_model=unrolled", "unrolled"),
        ("aono", "as one batch"),
        ("spear", "no"),
    ],
)
def test_local_steps(text: str, told: str):
    assert facts_of(parse("attack", text))["local steps"] == [told]


class Searching(AttackSpec):
    """An attack that says of itself only that it searches."""

    name: ClassVar[str] = "searching"

    def cost(self) -> SearchCost:
        return SearchCost(evaluations=7)

    def reconstruct(self, observation: Any) -> Any: ...


def test_an_attack_that_says_nothing_of_itself():
    found = facts_of(Searching())
    columns = ("optimiser", "main loss term", "labels", "source")
    assert [found[column] for column in columns] == [[]] * 4
    assert facts_of(parse("attack", "aono"))["optimiser"] == ["none, no iterations"]
    for name, told in (("agic_epochs", "yes"), ("agic", "no")):
        assert facts_of(parse("attack", name))["several epochs"] == [told]


def test_text_forms_show_labels_and_the_csv_specs(nothing: FigureData, tmp_path: Path):
    make("dlg", "invertgrad", labels=LABELS).draw(nothing, tmp_path / "t")
    head, dlg, inverted = read_page(tmp_path / "t.html")[0]
    assert head[:4] == ["method", "main loss term", "other terms", "optimiser"]
    assert dlg[:5] == ["DLG", "l2", "–", "L-BFGS", "optimised"]
    assert inverted[:3] == ["invertgrad", "cosine", "TV_2, values in [0, 1]"]
    table = pd.read_csv(tmp_path / "t.csv", keep_default_na=False).set_index("attack")
    assert list(table.columns) == list(facts_of(parse("attack", "dlg")))[1:]
    assert table.loc["dlg", "optimiser"] == "lbfgs"
    assert table.loc["invertgrad", "other terms"] == "total variation, values in [0, 1]"
    latex = (tmp_path / "t.tex").read_text(encoding="utf-8")
    assert "DLG & l2 & -- & L-BFGS &" in latex
    assert r"TV\_2, values" in latex
    assert "main loss term & other terms &" in latex


def test_a_label_for_a_name_serves_all_specs_of_it_that_have_none(
    nothing: FigureData, tmp_path: Path
):
    adams = {"adam": "Adam", "adam+signed=true+schedule=steps": "signed Adam"}
    make("gm", "invertgrad", "cpa_fi", labels=adams).draw(nothing, tmp_path / "t")
    head, *rows = read_page(tmp_path / "t.html")[0]
    place = head.index("optimiser")
    assert [row[place] for row in rows] == ["Adam", "signed Adam", "Adam"]


def test_labels_and_attacks_need_not_be_canonical():
    figure = make("cpl+alpha=1+restarts=3", labels={"cpl+alpha=1.0+restarts=3": "CPL"})
    assert figure.attacks == ["cpl+restarts=3+alpha=1"]
    assert figure.label("cpl+restarts=3+alpha=1") == "CPL"


@pytest.mark.slow
def test_files_are_the_same_each_time(nothing: FigureData, draw_twice: DrawTwice):
    draw_twice(make(*load("attack")), nothing)


def test_it_is_made_of_the_modules_of_its_attacks():
    modules = make("dlg", "cpl+optimizer=gauss_newton").modules
    for name in ("figures.kinds.attack_table", "attacks.dlg", "attacks.matching.gauss_newton"):
        assert f"gleak.{name}" in modules
    assert "gleak.attacks.mkor" not in modules


@pytest.mark.parametrize(
    ("attacks", "fields", "fault"),
    [
        (["dgl"], {}, "unknown attack 'dgl'; did you mean 'dlg'"),
        (["dlg", "dlg"], {}, "several attacks are called dlg; give each a label"),
        (["dlg", "idlg"], {"labels": {"dlg": "A", "idlg": "A"}}, "several attacks are called A"),
        (["dlg"], {"labels": {"lbfsg": "L"}}, "'lbfsg' is not in the table; .*'lbfgs'"),
    ],
)
def test_faults_are_named(attacks: list[str], fields: dict[str, Any], fault: str):
    with pytest.raises(SpecError, match=fault):
        make(*attacks, **fields)
