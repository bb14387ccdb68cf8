from __future__ import annotations

import errno
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gleak.artifacts.atomic import atomic, discard, held, whole_folder
from gleak.core.errors import ArtifactError


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_appears_when_the_block_succeeds(tmp_path: Path, durable: bool) -> None:
    (tmp_path / ".it.1.partial").touch()
    with pytest.raises(RuntimeError), atomic(tmp_path / "it", durable=durable) as temporary:
        temporary.touch()
        raise RuntimeError
    assert names(tmp_path) == []
    with atomic(tmp_path / "it", durable=durable) as temporary:
        temporary.touch()
        assert not (tmp_path / "it").exists()
    assert names(tmp_path) == ["it"]


def test_a_folder_appears_when_the_block_succeeds_and_replaces_the_old_one(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / ".it.1.partial").mkdir()
        with whole_folder(tmp_path / "it") as folder:
            (folder / name).touch()
            assert not (tmp_path / "it" / name).exists()
        assert names(tmp_path) == ["it", f"it/{name}"]


@pytest.mark.parametrize("there", [False, True])
def test_a_failed_block_leaves_no_folder(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "it").mkdir()
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "it") as folder:
        (folder / "half").touch()
        raise RuntimeError
    assert names(tmp_path) == ["it"] * there


def test_one_that_cannot_take_its_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "old").touch()
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.suffix == ".partial":
            raise OSError("no space left")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ArtifactError, match="no space left"), whole_folder(tmp_path / "it"):
        pass
    assert names(tmp_path) == ["it", "it/old"]


def test_of_two_writers_the_last_to_finish_has_the_name(tmp_path: Path) -> None:
    with atomic(tmp_path / "it") as first:
        first.write_text("begun first")
        with atomic(tmp_path / "it") as second:
            second.write_text("begun second")
        assert (tmp_path / "it").read_text() == "begun second"
        assert first.read_text() == "begun first"
    assert (tmp_path / "it").read_text() == "begun first"
    assert names(tmp_path) == ["it"]


def test_of_two_makers_of_a_folder_the_later_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def late(path: Path, target: Path) -> Path:
        (target / "other").mkdir(parents=True)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    with (
        pytest.raises(ArtifactError, match="it: another process has made it at the same time"),
        whole_folder(tmp_path / "it") as folder,
    ):
        (folder / "mine").touch()
    assert names(tmp_path) == ["it", "it/other"]


WRITES = """
import os, signal, sys
from pathlib import Path
from gleak.artifacts.atomic import atomic
path = Path(sys.argv[1])
for number in range(100):
    with atomic(path) as temporary:
        temporary.write_text(sys.argv[2] * 100)
with atomic(path) as temporary:
    temporary.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_that_write_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Each writes often, and is killed in the end."""
    path = tmp_path / "it"
    commands = [[sys.executable, "-c", WRITES, str(path), letter] for letter in "ab"]
    writers = [subprocess.Popen(command) for command in commands]
    while any(writer.poll() is None for writer in writers):
        assert not path.exists() or path.read_text() in ("a" * 100, "b" * 100)
    assert [writer.returncode for writer in writers] == [-signal.SIGKILL] * 2
    assert [*tmp_path.glob(".it.*.partial")]
    with atomic(path) as temporary:
        temporary.touch()
    assert names(tmp_path) == ["it"]


def test_a_folder_that_was_being_replaced_has_its_name_again(tmp_path: Path) -> None:
    """A process was killed after it had put the old folder aside."""
    (tmp_path / ".it.1.partial" / "former" / "old").mkdir(parents=True)
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "it"):
        raise RuntimeError
    assert names(tmp_path) == ["it", "it/old"]


@pytest.mark.parametrize(("age", "left"), [(23, True), (25, False)])
def test_without_locks_what_is_a_day_old_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, left: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    old = tmp_path / ".it.1.partial"
    old.mkdir()
    then = time.time() - 3600 * age
    os.utime(old, (then, then))
    with held(tmp_path / "lock"), atomic(tmp_path / "it") as temporary:
        temporary.touch()
    assert names(tmp_path) == [*[old.name] * left, "it"]


@pytest.fixture
def umask() -> Iterator[Callable[[int], object]]:
    before = os.umask(0)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(("mask", "open_to_others"), [(0o022, 0o644), (0o077, 0o600), (0, 0o666)])
def test_what_is_private_is_never_open_to_others(
    tmp_path: Path, mask: int, open_to_others: int, umask: Callable[[int], object]
) -> None:
    umask(mask)
    (tmp_path / "it").touch()
    for private, mode in ((True, 0o600), (False, open_to_others)):
        with atomic(tmp_path / "it", private=private) as temporary:
            temporary.write_text("a sample")
            assert temporary.parent.stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "it").stat().st_mode & 0o777 == mode


HOLDS = """
import sys
from pathlib import Path
from gleak.artifacts.atomic import held
with held(Path(sys.argv[1])):
    print(flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["leaves", "is killed"])
def test_a_lock_is_awaited_and_its_holder_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        threading.Timer(0.3, holder.kill if end == "is killed" else holder.stdin.close).start()
        with held(tmp_path / "lock"):
            assert holder.wait() is not None
    said = f"lock: process {holder.pid} on {platform.node()} does the same work; waiting"
    assert said in caplog.text
    assert names(tmp_path) == []


@pytest.mark.parametrize("place", ["file/lock", "folder", "link"])
def test_a_lock_that_cannot_be_made_is_an_error_of_gleak(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    failing = pytest.raises(ArtifactError, match=rf"{place}: could not be locked \(.*check")
    with failing, held(tmp_path / place):
        pytest.fail("the lock was taken")
    assert (tmp_path / "file").read_text() == "content"


def test_what_cannot_be_removed_is_an_error_of_gleak(tmp_path: Path) -> None:
    (tmp_path / "it").mkdir()
    with pytest.raises(ArtifactError, match="it: could not be removed"):
        discard(tmp_path / "it")


TAKES_TWICE = """
import sys
from pathlib import Path
from gleak.artifacts.atomic import held
with held(Path(sys.argv[1])):
    with held(Path(sys.argv[1])):
        pass
"""


def test_a_process_does_not_wait_for_its_own_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKES_TWICE, str(tmp_path / "lock")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert "lock: this process does the same work already; let it end first" in ended.stderr
    assert names(tmp_path) == []
