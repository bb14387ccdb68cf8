from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gleak.core.errors import SpecError
from gleak.studies.cell import LEVELS
from gleak.studies.search.adopt import adopt
from gleak.studies.search.chosen import SearchOutcome, chosen_file, read_choices
from gleak.studies.study import load_study

CELL = dict(zip(LEVELS, ["digits", "lenet", "untrained", "honest", "fedsgd", "none"], strict=False))
SEARCH = {
    **CELL,
    "client": "fedsgd+split=train",
    "attack": "cpl",
    "ranges": {"alpha": {"low": 0, "high": 10}},
    "trials": 3,
    "metric": "mse",
}
CONTENT: dict[str, Any] = {
    "title": "t",
    "paper": "p",
    "searches": {"b": SEARCH, "a": {**SEARCH, "trials": 5}},
    "grids": {"attacks": {**CELL, "attack": {"search": "a"}, "controls": []}},
    "figures": {},
}
MakeOutcome = Callable[..., Path]


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    """Create a folder with two equal studies."""
    folder = tmp_path / "studies"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(CONTENT))
    return folder


@pytest.fixture
def outcome(studies: Path, tmp_path: Path) -> MakeOutcome:
    """Return a factory that writes the outcome of a search, with changed fields."""

    def make(
        search: str = "a", scale: str = "quick", study: str = "one", alpha: float = 3, **fields: Any
    ) -> Path:
        declared = load_study(studies / "one.yaml").search("a" if search == "c" else search, scale)
        found = SearchOutcome(
            study=study,
            scale=scale,
            search=search,
            chosen=f"cpl+alpha={alpha:g}",
            value=0.5,
            base_value=0.75,
            metric="mse",
            trials=declared.trials,
            levels=declared.cell.strings(),
            fingerprint=declared.fingerprint,
        ).model_copy(update=fields)
        folder = tmp_path / "results" / study / scale / search
        found.write(folder / f"{alpha:g}" / "chosen.yaml")
        return folder / f"{alpha:g}" / "chosen.yaml"

    return make


def chosen(studies: Path, study: str = "one") -> dict[str, dict[str, str]]:
    choices = read_choices(chosen_file(studies / f"{study}.yaml"))
    return {
        scale: {name: entry.chosen for name, entry in entries.items()}
        for scale, entries in choices.items()
    }


def test_what_was_chosen_is_used(studies: Path, outcome: MakeOutcome):
    adopt([outcome(scale="paper", alpha=7)], studies)
    study = load_study(studies / "one.yaml")
    attacks = [str(study.grid("attacks", scale).cells[0].attack) for scale in ("quick", "paper")]
    assert attacks == ["cpl", "cpl+alpha=7"]


def test_choices_are_merged_and_others_stay(studies: Path, outcome: MakeOutcome):
    adopt([outcome(), outcome("b"), outcome(study="two")], studies)
    adopt([outcome(alpha=4), outcome(scale="small")], studies)
    assert chosen(studies) == {
        "quick": {"a": "cpl+alpha=4", "b": "cpl+alpha=3"},
        "small": {"a": "cpl+alpha=3"},
    }
    assert chosen(studies, "two") == {"quick": {"a": "cpl+alpha=3"}}


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"study": "tow"}, r"tow\.yaml: no study file; did you mean 'two'"),
        ({"search": "c"}, "study 'one': unknown search 'c'; .*valid: a, b"),
        ({"fingerprint": "another"}, "search 'a' of study 'one' has changed since; run it again"),
    ],
)
def test_nothing_is_written_unless_all_of_it_can_be(
    studies: Path, outcome: MakeOutcome, fields: dict[str, Any], fault: str
):
    with pytest.raises(SpecError, match=fault):
        adopt([outcome("b"), outcome(**fields)], studies)
    assert not (studies / "chosen").exists()


def test_two_outcomes_of_one_search_are_refused(studies: Path, outcome: MakeOutcome):
    files = [outcome(alpha=3), outcome(alpha=4)]
    with pytest.raises(SpecError, match=r"/3/chosen\.yaml and .*/4/chosen\.yaml are both of .*'a'"):
        adopt(files, studies)
    adopt([files[0], files[0]], studies)
    assert chosen(studies) == {"quick": {"a": "cpl+alpha=3"}}
