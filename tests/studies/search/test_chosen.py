from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gleak.core.errors import SpecError
from gleak.studies.search.chosen import Entry, SearchOutcome, read_choices, write_choices

CONTENT: dict[str, Any] = {
    "chosen": "cpl+alpha=2.5",
    "value": 0.125,
    "base_value": None,
    "metric": "mse",
    "trials": 3,
    "levels": {"dataset": "digits", "attack": "cpl"},
    "fingerprint": "0123456789abcdef",
}
PLACE = {"study": "cpa", "scale": "quick", "search": "weights"}


def entry(**fields: Any) -> Entry:
    return Entry(**{**CONTENT, **fields})


def test_an_outcome_reads_as_written(tmp_path: Path):
    outcome = SearchOutcome(**PLACE, **CONTENT)
    outcome.write(tmp_path / "chosen.yaml")
    assert SearchOutcome.read(tmp_path / "chosen.yaml") == outcome
    assert yaml.safe_load((tmp_path / "chosen.yaml").read_text()) == {**PLACE, **CONTENT}
    assert outcome.entry == entry()


def test_a_summary_says_what_was_gained():
    assert "cpl+alpha=2.5 has mse 0.125; the base cpl failed" in (
        SearchOutcome(**PLACE, **CONTENT).summary
    )
    assert "had 0.25" in SearchOutcome(**PLACE, **{**CONTENT, "base_value": 0.25}).summary


def test_choices_read_as_written_in_one_order(tmp_path: Path):
    path = tmp_path / "chosen" / "cpa.yaml"
    choices = {"paper": {"b": entry(trials=2), "a": entry()}, "quick": {"b": entry()}}
    write_choices(path, choices)
    first = path.read_bytes()
    assert read_choices(path) == choices
    assert [*read_choices(path)] == ["quick", "paper"]
    assert [*read_choices(path)["paper"]] == ["a", "b"]
    write_choices(path, read_choices(path))
    assert path.read_bytes() == first


def test_long_specs_stay_on_one_line(tmp_path: Path):
    long = "cpl" + "".join(f"+field_{n}={n / 7:.3g}" for n in range(12))
    write_choices(tmp_path / "cpa.yaml", {"quick": {"a": entry(chosen=long)}})
    assert f"chosen: {long}\n" in (tmp_path / "cpa.yaml").read_text()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"quik": {"a": CONTENT}}, "unknown scale 'quik'; did you mean 'quick'"),
        ({"quick": ["a"]}, "scale 'quick' must be a mapping"),
        (
            {"quick": {"a": {**CONTENT, "chsen": "cpl"}}},
            "scale 'quick', search 'a': unknown key 'chsen'; did you mean 'chosen'",
        ),
        ({"quick": {"a": {"chosen": "cpl"}}}, "search 'a': key 'value' is missing"),
        (["quick"], "the file of choices must be a mapping"),
    ],
)
def test_faults_name_the_file_and_the_place(tmp_path: Path, content: Any, fault: str):
    path = tmp_path / "cpa.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(SpecError, match=f"cpa.yaml: .*{fault}|cpa.yaml: {fault}"):
        read_choices(path)


@pytest.mark.parametrize("content", ["a: [", "- a", "study: cpa"])
def test_files_that_are_no_outcome(tmp_path: Path, content: str):
    (tmp_path / "chosen.yaml").write_text(content)
    with pytest.raises(SpecError, match=r"chosen\.yaml: "):
        SearchOutcome.read(tmp_path / "chosen.yaml")
