"""Studies whose attacks are searched, and what was chosen for them."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gleak.core.errors import SpecError
from gleak.core.settings import SCALES
from gleak.studies.cell import LEVELS
from gleak.studies.search.chosen import Entry, chosen_file, read_choices, write_choices
from gleak.studies.study import Study, load_study
from tests.studies.test_study import CONTENT, write

CELL = "mnist/lenet/untrained/honest/fedsgd+split=train/none/cpl+alpha=0.5"
SEARCH: dict[str, Any] = {
    **dict(zip(LEVELS, CELL.split("/"), strict=True)),
    "ranges": {"alpha": {"low": 0.1, "high": 10, "log": True}},
    "trials": 30,
    "metric": "ssim",
    "quick": {"dataset": "digits", "trials": 2},
}
TUNED = deepcopy(CONTENT) | {"searches": {"weights": SEARCH}}
TUNED["grids"]["attacks"]["attack"] = [{"search": "weights", "patience": 9}, "dlg"]


def choose(study: Path, scale: str, chosen: str, search: str = "weights") -> None:
    """Adopt a choice as `gleak adopt` does."""
    declared = load_study(study).search(search, scale)
    entry = Entry(
        chosen=chosen,
        value=0.5,
        base_value=0.25,
        metric=str(declared.metric),
        trials=declared.trials,
        levels=declared.cell.strings(),
        fingerprint=declared.fingerprint,
    )
    path = chosen_file(study)
    choices = read_choices(path)
    write_choices(path, {**choices, scale: {**choices.get(scale, {}), search: entry}})


def tuned_attack(study: Study, scale: str) -> str:
    return study.grid("attacks", scale).cells[0].strings()["attack"]


def test_searches_are_read_at_every_scale(tmp_path: Path):
    study = load_study(write(tmp_path, TUNED))
    assert [study.search("weights", scale).trials for scale in SCALES] == [2, *[30] * 3]
    assert study.search("weights", "quick").cell.strings()["dataset"] == "digits"
    for fault, names in [
        ("unknown search 'weight'; did you mean 'weights'", ("weight", "quick")),
        ("unknown scale 'quik'; did you mean 'quick'", ("weights", "quik")),
    ]:
        with pytest.raises(SpecError, match=f"study 'mine': {fault}"):
            study.search(*names)


def test_a_study_uses_what_was_chosen_at_its_scale_and_the_base_before(tmp_path: Path):
    path = write(tmp_path, TUNED)
    base = "cpl+patience=9+alpha=0.5"
    assert [tuned_attack(load_study(path), scale) for scale in SCALES] == [base] * 4
    choose(path, "quick", "cpl+alpha=3")
    choose(path, "paper", "cpl+alpha=7.5")
    study = load_study(path)
    assert [tuned_attack(study, scale) for scale in SCALES] == [
        "cpl+patience=9+alpha=3",
        base,
        base,
        "cpl+patience=9+alpha=7.5",
    ]
    study.check_choices()


def test_a_search_without_a_result_is_named_with_the_values_in_its_place(tmp_path: Path):
    path = write(tmp_path, TUNED)
    line = "search weights not adopted: base attack cpl with alpha=0.5"
    assert [load_study(path).substitutes(scale) for scale in SCALES] == [[line]] * 4
    choose(path, "quick", "cpl+alpha=3")
    study = load_study(path)
    assert [study.substitutes(scale) for scale in SCALES] == [[], *[[line]] * 3]


def test_figures_say_which_of_the_searches_they_show_have_no_result(tmp_path: Path):
    content = deepcopy(TUNED)
    line = content["figures"]["line"]
    content["figures"]["other"] = {**line, "where": {**line["where"], "attack": "dlg"}}
    path = write(tmp_path, content)
    choose(path, "quick", "cpl+alpha=3")
    study = load_study(path)
    in_caption = "Not searched:** search weights not adopted: base attack cpl with alpha=0.5."
    below = "Search weights not adopted"
    for figure, scale, told in [
        ("line", "paper", True),
        ("line", "quick", False),
        ("other", "paper", False),
    ]:
        assert (in_caption in study.caption(figure, scale)) == told
        assert (below in study.conditions(figure, scale)) == told


LATER: dict[str, Any] = {
    **SEARCH,
    "after": "weights",
    "attack": "cpl+iterations=7",
    "ranges": {"patience": {"low": 1, "high": 500}},
}


def test_a_search_begins_with_what_the_one_before_it_chose(tmp_path: Path):
    path = write(tmp_path, TUNED | {"searches": {"weights": SEARCH, "later": LATER}})
    assert str(load_study(path).search("later", "quick").base) == "cpl+iterations=7+alpha=0.5"
    choose(path, "quick", "cpl+iterations=3+patience=8+alpha=3")
    study = load_study(path)
    assert str(study.search("later", "quick").base) == "cpl+iterations=7+alpha=3"
    assert str(study.search("later", "quick").written) == "cpl+iterations=7"
    assert str(study.search("later", "paper").base) == "cpl+iterations=7+alpha=0.5"


def test_a_search_is_outdated_by_a_new_result_of_the_one_before_it(tmp_path: Path):
    path = write(tmp_path, TUNED | {"searches": {"weights": SEARCH, "later": LATER}})
    choose(path, "quick", "cpl+alpha=3")
    choose(path, "quick", "cpl+iterations=7+patience=9+alpha=3", search="later")
    load_study(path).check_choices()
    choose(path, "quick", "cpl+alpha=4")
    with pytest.raises(SpecError, match=r"'later' has changed .*or one that it comes after"):
        load_study(path).check_choices()


@pytest.mark.parametrize(
    ("searches", "fault"),
    [
        ({"weights": SEARCH, "later": {**LATER, "after": "weigths"}}, "did you mean 'weights'"),
        ({"later": LATER, "weights": SEARCH}, "unknown earlier search 'weights'"),
        ({"weights": SEARCH, "later": {**LATER, "attack": "dlg"}}, "unknown field 'alpha'"),
    ],
)
def test_a_search_comes_after_one_that_is_written_before_it(
    tmp_path: Path, searches: dict[str, Any], fault: str
):
    path = write(tmp_path, TUNED | {"searches": searches})
    with pytest.raises(SpecError, match=f"search 'later', scale 'quick': .*{fault}"):
        load_study(path)


@pytest.mark.parametrize("chosen", [None, "cpl+alpha=3"])
def test_figures_and_claims_name_the_base_whatever_was_chosen(tmp_path: Path, chosen: str | None):
    content = deepcopy(TUNED)
    base = "cpl+patience=9+alpha=0.5"
    content["figures"]["line"]["where"]["attack"] = base
    content["expect"][0]["order"] = [base, "dlg"]
    path = write(tmp_path, content)
    if chosen:
        choose(path, "quick", chosen)
    study = load_study(path)
    spec, grid = study.figure("line"), study.grid("attacks", "paper")
    assert len(spec.chosen(grid.names, grid.names.cells(grid.scored))) == 2
    names = study.grid("attacks", "quick").names
    assert names.label("attack", names.specs["attack"][tuned_attack(study, "quick")]) == "CPL"


def test_a_choice_of_another_declaration_stops_what_uses_it_and_nothing_else(tmp_path: Path):
    path = write(tmp_path, TUNED)
    choose(path, "quick", "cpl+alpha=3")
    content = deepcopy(TUNED)
    content["searches"]["weights"]["quick"]["trials"] = 5
    study = load_study(write(tmp_path, content))
    fault = "search 'weights' has changed .*run it again .snakemake searches.*, then gleak adopt"
    with pytest.raises(SpecError, match=f"study 'mine', grid 'attacks', scale 'quick': {fault}"):
        study.grid("attacks", "quick")
    with pytest.raises(SpecError, match=f"study 'mine', scale 'quick': {fault}"):
        study.check_choices()
    assert study.search("weights", "quick").trials == 5
    assert study.grid("models", "quick").cells
    assert tuned_attack(study, "paper") == "cpl+patience=9+alpha=0.5"


@pytest.mark.parametrize(
    ("keys", "value", "fault"),
    [
        (("trails",), 3, "search 'weights': unknown key 'trails'; did you mean 'trials'"),
        (("quick", "trails"), 3, "search 'weights': unknown key 'quick.trails'; did .*'trials'"),
        (("ranges", "alpha", "low"), -1, "ranges, field 'alpha': .*above 0"),
    ],
)
def test_faults_of_searches_name_file_study_search_and_key(
    tmp_path: Path, keys: tuple[str, ...], value: Any, fault: str
):
    content = deepcopy(TUNED)
    place: Any = content["searches"]["weights"]
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path = write(tmp_path, content)
    with pytest.raises(SpecError, match=f"study 'mine', .*{fault}") as raised:
        load_study(path)
    assert str(raised.value).startswith(f"{path}: study 'mine'")


def test_choices_that_no_search_made_are_refused(tmp_path: Path):
    path = write(tmp_path, TUNED)
    choose(path, "quick", "cpl+beta=3")
    place = f"{path}: study 'mine', search 'weights', scale 'quick': "
    with pytest.raises(SpecError, match=f"{place}attack 'cpl': unknown field 'beta'"):
        load_study(path)
    write(tmp_path, CONTENT)
    fault = "chosen/mine.yaml: the study has no search 'weights'; take it out"
    with pytest.raises(SpecError, match=fault):
        load_study(path)


def test_what_is_chosen_after_another_search_is_called_as_the_study_writes_it(tmp_path: Path):
    content = deepcopy(TUNED) | {"searches": {"weights": SEARCH, "later": LATER}}
    content["grids"]["attacks"]["attack"] = [{"search": "later"}, "dlg"]
    content["grids"]["attacks"]["exclude"] = [{"attack": "cpl+iterations=7", "dataset": "mnist"}]
    content["grids"]["attacks"]["quick"] = {"exclude": [{"attack": "cpl+iterations=7"}]}
    content["figures"] = {}
    content["expect"] = []
    path = write(tmp_path, content)
    choose(path, "quick", "cpl+alpha=3")
    assert {cell.attack.name for cell in load_study(path).grid("attacks", "quick").cells} == {
        "dlg",
        "blind",
    }
