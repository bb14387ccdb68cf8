"""Whatever stands in paths and in files that people write: it is taken, or refused by name."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gleak.core.errors import GleakError, SpecError
from gleak.core.registry import load, parse
from gleak.core.settings import Settings
from gleak.core.yaml_input import MOST_VALUES, load_mapping, read_model
from gleak.studies.cell import LEVELS, Cell, Paths
from gleak.studies.study import build_study, load_study
from gleak.studies.study_file import StudyFile

CELL = {
    "dataset": "digits",
    "model": "lenet",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd",
    "defense": "none",
    "attack": "blind",
}
LONGEST_NAME = 255
HOSTILE = [
    *("../x", "/etc", "a\x00b", "a/b", "..", ".", "a\\b", "~", "$HOME", "{x}", "*", "\n", "٣", "é"),
    *("1e400", "nan", "-1", "1_0", "none", "cpl", "..%2f"),
]
HUGE = ["9" * 400, "9" * 5000, "x" * 300]
within_a_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@st.composite
def written_specs(draw: st.DrawFn, level: str) -> str:
    """A name of the level and some of its fields, with values that may be anything."""
    name = draw(st.sampled_from(sorted(load(level))))
    fields = sorted(load(level)[name].model_fields)
    value = st.sampled_from([*HOSTILE, *HUGE]) | st.text(max_size=5) | st.integers().map(str)
    keys = draw(st.lists(st.sampled_from(fields), max_size=3)) if fields else []
    return "+".join([name, *(f"{key}={draw(value)}" for key in keys)])


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """A spec some of whose characters are others."""
    at = draw(st.integers(0, len(text)))
    cut = draw(st.integers(0, 3))
    return text[:at] + draw(st.sampled_from(HOSTILE) | st.text(max_size=3)) + text[at + cut :]


@st.composite
def paths(draw: st.DrawFn) -> dict[str, str]:
    """Texts for all levels, some of which are no specs."""
    level = st.sampled_from(LEVELS)
    texts = dict(CELL)
    for name in draw(st.lists(level, min_size=1, max_size=3)):
        known = "cpl+start=patterned~tiles=4" if name == "attack" else CELL[name]
        texts[name] = draw(st.text() | written_specs(name) | mutated(known))
    return texts


@settings(max_examples=300)
@given(paths())
@example({**CELL, "attack": ".."})
@example({**CELL, "model": "custom+factory=..", "client": "captured+capture=.."})
def test_a_path_stays_below_the_results_or_is_refused(texts: dict[str, str]) -> None:
    try:
        cell = Cell.from_path(texts)
    except GleakError:
        return
    results = Path("/results")
    folder = Paths(results).folder(cell)
    assert Path(os.path.normpath(folder)) == folder
    assert folder.relative_to(results / "artifacts").parts == tuple(texts.values())
    for part in folder.parts:
        assert len(os.fsencode(part)) <= LONGEST_NAME
        assert not set(part[1:]) & set("/\\\0\n")


@settings(max_examples=500)
@given(st.sampled_from(LEVELS), st.data())
def test_a_text_is_a_spec_or_refused(level: str, data: st.DataObject) -> None:
    with suppress(GleakError):
        parse(level, data.draw(st.text() | written_specs(level)))


def test_links_in_the_results_are_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "artifacts").symlink_to(tmp_path / "elsewhere")
    folder = Paths(tmp_path).folder(Cell.from_path(CELL))
    assert folder.is_relative_to(tmp_path)
    assert folder.resolve() == (tmp_path / "elsewhere").joinpath(*CELL.values())


PLAIN = ["null", "true", "-1", "1.5", ".nan", "2001-99-99", "0x_", "1:_:1"]
MARKS = ["[*a]", "&a", "*a", "!!int", "!!bool", "!!timestamp", "<<", "{}", "[[", "?", ":", "|"]
TAGS = ["!!python/object/apply:os.getcwd"]
SCALARS = st.sampled_from([*PLAIN, *MARKS, *TAGS]) | st.text(max_size=6)
DOCUMENTS = st.lists(SCALARS, max_size=8).flatmap(
    lambda words: st.sampled_from([" ", "\n", ": ", "\n- ", ", "]).map(lambda by: by.join(words))
)
FAULTY = {
    "nested": "a: " + "[" * 3000,
    "nested sequences": "- " * 100_000,
    "date": "a: 2001-99-99",
    "number": "a: 0x_",
    "digits": "a: " + "9" * 5000,
    "nothing": "a: !!int ''",
    "truth": "a: !!bool maybe",
    "time": "a: !!timestamp x",
    "itself": "a: &a [*a]",
}


def read_all(path: Path) -> None:
    """Every way that a YAML file of the user is read; what else but a GleakError comes, goes on."""
    with suppress(GleakError):
        load_study(path)
    with suppress(GleakError):
        Settings.read(load_mapping(path, "configuration", "studies"))


@settings(within_a_folder, max_examples=300)
@given(text=st.text() | DOCUMENTS | DOCUMENTS.map("studies: {}".format))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.yaml").write_text(text, encoding="utf-8", errors="replace")
    read_all(tmp_path / "study.yaml")


@settings(within_a_folder, max_examples=100)
@given(content=st.binary())
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "study.yaml").write_bytes(content)
    read_all(tmp_path / "study.yaml")


@pytest.mark.parametrize("fault", FAULTY)
def test_values_that_are_none_are_refused(tmp_path: Path, fault: str) -> None:
    (tmp_path / "study.yaml").write_text(FAULTY[fault])
    with pytest.raises(SpecError, match=r"study\.yaml: not YAML: "):
        load_mapping(tmp_path / "study.yaml", "study file", "title")


@pytest.mark.parametrize("tag", ["object/apply:os.mkdir", "name:os.mkdir", "module:os", "tuple"])
def test_yaml_makes_no_objects(tmp_path: Path, tag: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"a: !!python/{tag} [{tmp_path}/made]")
    with pytest.raises(SpecError, match="not YAML"):
        load_mapping(path, "study file", "title")
    assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("line", ["[*{0}, *{0}, *{0}, *{0}]", "{{<<: [*{0}, *{0}, *{0}, *{0}]}}"])
def test_aliases_stand_for_no_more_than_a_file_may(tmp_path: Path, line: str) -> None:
    lines = ["a0: &a0 {x: 1}", *(f"a{n + 1}: &a{n + 1} {line.format(f'a{n}')}" for n in range(30))]
    (tmp_path / "study.yaml").write_text("\n".join(lines))
    with pytest.raises(SpecError, match=f"more than {MOST_VALUES} values"):
        load_mapping(tmp_path / "study.yaml", "study file", "title")


def test_aliases_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: [*a]}")
    content = load_mapping(tmp_path / "study.yaml", "study file", "title")
    assert content == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": [{"x": 1}]}}


STUDY: dict[str, Any] = {
    "title": "a study",
    "paper": "a paper",
    "grids": {
        "attacks": {
            "dataset": ["digits"],
            "model": ["lenet"],
            "training": ["untrained"],
            "crafting": ["honest"],
            "client": ["fedsgd"],
            "defense": ["none", "topk"],
            "attack": ["cpl", "cpl+restarts=2"],
            "quick": {"client": ["fedsgd+victims=2"]},
            "labels": {"topk": "the largest"},
        },
    },
    "figures": {
        "line": {
            "kind": "line",
            "grid": "attacks",
            "x": "defense",
            "y": "mse",
            "where": {"attack": "cpl"},
        },
        "table": {
            "kind": "table",
            "grid": "attacks",
            "rows": ["defense"],
            "columns": ["attack", "metric"],
            "metrics": ["mse", "ssim"],
            "where": {"dataset": "digits"},
        },
    },
    "expect": [
        {
            "id": "better",
            "grid": "attacks",
            "metric": "mse",
            "along": "attack",
            "order": ["cpl+restarts=2", "cpl"],
            "claim": "it is",
            "source": "there",
        }
    ],
}
ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, float("nan"), 10**400, "", "x", "../x", "a\0b", "cpl", "lenet"),
    *([], {}, [[]], [1], [{}], ["cpl", "cpl"], {"a": {"b": "c"}}, {1: 2}, {None: []}, {"a"}),
    *(b"\xff", date(2001, 1, 1), {"quick": 1}, "attack", "defense.keep", "mse", [None], "{}"),
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container below a value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys if isinstance(value, dict | list) else ():
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def change(study: Any, choose: random.Random) -> None:
    """Put something odd in the place of a value or of its key."""
    container, key = choose.choice(list(places(study)))
    odd = deepcopy(choose.choice(ODD))
    if isinstance(container, dict) and not choose.randrange(4):
        with suppress(TypeError):  # what is no key is left out
            container[odd] = container.pop(key)
    elif choose.randrange(5):
        container[key] = odd
    else:
        del container[key]


@settings(max_examples=500)
@given(choose=st.randoms(use_true_random=False), times=st.integers(1, 3))
def test_any_content_of_a_study_is_taken_or_refused(choose: random.Random, times: int) -> None:
    study = deepcopy(STUDY)
    for _ in range(times):
        change(study, choose)
    with suppress(GleakError):
        build_study("study", read_model(StudyFile, study, "study"), "study")


def test_the_study_that_is_changed_is_one(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(STUDY))
    assert load_study(tmp_path / "study.yaml").title == "a study"


@pytest.mark.parametrize("part", ["grids", "figures"])
@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", "a b", "a\0"])
def test_names_in_a_study_hold_no_way_out(tmp_path: Path, part: str, name: str) -> None:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({**STUDY, part: {name: {}}}))
    with pytest.raises(SpecError, match="should match pattern"):
        load_study(tmp_path / "study.yaml")


KEYS = st.sampled_from([*Settings.model_fields, "scael"]) | st.integers() | st.text(max_size=3)


@settings(max_examples=300)
@given(st.dictionaries(KEYS, st.sampled_from(ODD) | st.text(max_size=3), max_size=4))
def test_any_configuration_is_taken_or_refused(config: dict[Any, Any]) -> None:
    with suppress(GleakError):
        Settings.read({"studies": ["cpl"], **config})


@pytest.mark.parametrize("folder", ["a\0b", "{x}", "a\nb"])
@pytest.mark.parametrize("key", ["results_dir", "data_dir"])
def test_folders_have_names_that_a_workflow_can_use(key: str, folder: str) -> None:
    with pytest.raises(SpecError, match=f"{key} = .* may contain no line break"):
        Settings.read({"studies": ["cpl"], key: folder})
