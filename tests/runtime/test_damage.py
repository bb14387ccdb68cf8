from __future__ import annotations

from pathlib import Path

import pytest

from gleak.core.errors import DamagedError
from gleak.runtime.damage import NOTES, note_damage, quarantine


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for name in ("a/update.h5", "b/model.h5", "whole.h5"):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "results"


def test_what_was_noted_is_renamed_once(results: Path) -> None:
    for name in ("a/update.h5", "b/model.h5", "a/update.h5"):
        note_damage(DamagedError(results / name, "cut short"), results)
    assert (results / "a/update.h5").exists()
    assert quarantine(results) == [results / "a/update.h5", results / "b/model.h5"]
    left = sorted(path.relative_to(results).as_posix() for path in results.rglob("*.*"))
    assert left == ["a/update.h5.damaged", "b/model.h5.damaged", "whole.h5"]
    assert (results / "a/update.h5.damaged").read_text() == "a/update.h5"
    assert quarantine(results) == []


def test_what_is_made_again_by_then_is_not_asked_for(results: Path) -> None:
    note_damage(DamagedError(results / "whole.h5", "cut short"), results)
    (results / "whole.h5").unlink()
    assert quarantine(results) == []


@pytest.mark.parametrize("name", ["../mine.h5", "gone.h5"])
def test_other_files_are_named_and_left_alone(results: Path, name: str) -> None:
    (results.parent / "mine.h5").write_text("of the user")
    error = DamagedError(results / name, "cut short")
    assert note_damage(error, results) == str(error)
    assert not (results / NOTES).exists()


def test_a_folder_that_may_not_be_written_to_hides_no_error(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (results / NOTES).mkdir()
    error = DamagedError(results / "whole.h5", "cut short")
    assert note_damage(error, results) == str(error)


def test_notes_lead_nowhere_else(results: Path) -> None:
    (results.parent / "mine.h5").write_text("of the user")
    (results / NOTES).write_text("../mine.h5\n/etc/hostname\n")
    assert quarantine(results) == []
    assert (results.parent / "mine.h5").exists()
