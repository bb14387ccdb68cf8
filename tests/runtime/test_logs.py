from __future__ import annotations

import fcntl
import logging
import os
import re
import warnings
from pathlib import Path

import pytest

from gleak.core.errors import ArtifactError, DamagedError
from gleak.runtime.logs import NOTES, log_to, note_damage, rename_damaged

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (INFO|WARNING|ERROR) (.*)")


def messages(text: str) -> list[tuple[str, ...]]:
    return [match.groups() for line in text.splitlines() if (match := LINE.fullmatch(line))]


def test_lines_go_to_the_file_and_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "logs" / "attack.log"
    with log_to(path):
        logging.getLogger("gleak.somewhere").info("victim %d", 3)
        logging.getLogger("gleak.somewhere").debug("unseen")
    assert messages(path.read_text()) == [("INFO", "victim 3")]
    assert messages(capsys.readouterr().err) == [("INFO", "victim 3")]


def test_a_log_is_that_of_one_job_at_a_time(tmp_path: Path) -> None:
    path, lock = tmp_path / "x.log", tmp_path / ".x.log.lock"
    with pytest.raises(SystemExit), log_to(path):
        assert lock.read_text().startswith(f"process {os.getpid()} on ")
        with lock.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        raise ArtifactError("stop")
    assert not lock.exists()


def test_warnings_are_logged(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with log_to(tmp_path / "x.log"):
            warnings.warn("look out", stacklevel=1)
    assert "look out" in (tmp_path / "x.log").read_text()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ArtifactError("update.h5: no such file"), ["update.h5: no such file"]),
        (MemoryError("Unable to allocate 7 TiB"), ["7 TiB", "mem_mb"]),
    ],
)
def test_an_error_of_gleak_and_of_memory_is_one_line(
    error: Exception, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught, log_to(tmp_path / "x.log"):
        raise error
    assert caught.value.code == 1
    ((kind, text),) = messages((tmp_path / "x.log").read_text())
    assert kind == "ERROR" and all(word in text for word in words)
    assert messages(capsys.readouterr().err) == [(kind, text)]


def test_a_damaged_file_of_the_results_is_noted(tmp_path: Path) -> None:
    results, log = tmp_path / "my results", tmp_path / "x.log"
    results.mkdir()
    (results / "update.h5").write_text("damaged")
    with pytest.raises(SystemExit), log_to(log, results):
        raise DamagedError(results / "update.h5", "not whole")
    ((_, text),) = messages(log.read_text())
    path = results / "update.h5"
    assert text == f"{path}: not whole; it is made again by: snakemake '{path}'"
    assert (results / "damaged.txt").read_text() == "update.h5\n"


def test_any_other_error_is_logged_with_its_traceback_and_raised(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), log_to(tmp_path / "x.log"):
        1 / 0  # noqa: B018
    text = (tmp_path / "x.log").read_text()
    assert "Traceback" in text and "ZeroDivisionError" in text


def test_logging_is_restored(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), warnings.showwarning)
    with log_to(tmp_path / "x.log"):
        assert root.level == logging.INFO
    with pytest.raises(SystemExit), log_to(tmp_path / "x.log"):
        raise ArtifactError("stop")
    assert (root.level, list(root.handlers), warnings.showwarning) == before


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for name in ("a/update.h5", "b/model.h5", "whole.h5"):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "results"


def test_noted_files_are_renamed_once(results: Path) -> None:
    for name in ("a/update.h5", "b/model.h5", "a/update.h5"):
        note_damage(DamagedError(results / name, "cut short"), results)
    assert (results / "a/update.h5").exists()
    assert rename_damaged(results) == [results / "a/update.h5", results / "b/model.h5"]
    left = sorted(path.relative_to(results).as_posix() for path in results.rglob("*.*"))
    assert left == ["a/update.h5.damaged", "b/model.h5.damaged", "whole.h5"]
    assert (results / "a/update.h5.damaged").read_text() == "a/update.h5"
    assert rename_damaged(results) == []


def test_files_made_again_in_the_meantime_are_ignored(results: Path) -> None:
    note_damage(DamagedError(results / "whole.h5", "cut short"), results)
    (results / "whole.h5").unlink()
    assert rename_damaged(results) == []


@pytest.mark.parametrize("name", ["../mine.h5", "gone.h5", "whole.h5"])
def test_what_cannot_be_noted_is_named_and_unchanged(results: Path, name: str) -> None:
    (results.parent / "mine.h5").write_text("of the user")
    if name == "whole.h5":  # as where nothing may be written
        (results / NOTES).mkdir()
    error = DamagedError(results / name, "cut short")
    assert note_damage(error, results) == str(error)
    assert not (results / NOTES).is_file()


def test_notes_lead_nowhere_else(results: Path) -> None:
    (results.parent / "mine.h5").write_text("of the user")
    (results / NOTES).write_text("../mine.h5\n/etc/hostname\n")
    assert rename_damaged(results) == []
    assert (results.parent / "mine.h5").exists()
