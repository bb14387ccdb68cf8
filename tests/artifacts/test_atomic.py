from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from gleak.artifacts.atomic import atomic, renamed, whole_folder
from gleak.core.errors import ArtifactError


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("written", [atomic, renamed])
def test_a_file_appears_when_the_block_succeeds(
    tmp_path: Path, written: Callable[[Path], AbstractContextManager[Path]]
) -> None:
    (tmp_path / ".it.1.partial").touch()
    with pytest.raises(RuntimeError), written(tmp_path / "it") as temporary:
        temporary.touch()
        raise RuntimeError
    assert names(tmp_path) == []
    with written(tmp_path / "it") as temporary:
        temporary.touch()
        assert not (tmp_path / "it").exists()
    assert names(tmp_path) == ["it"]


def test_a_folder_appears_when_the_block_succeeds(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "in" / "it") as folder:
        (folder / "a").touch()
        assert not (tmp_path / "in" / "it").exists()
    assert names(tmp_path) == ["in", "in/it", "in/it/a"]


def test_one_that_is_there_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "old").touch()
    (tmp_path / ".it.1.partial").mkdir()
    with whole_folder(tmp_path / "it") as folder:
        (folder / "new").touch()
    assert names(tmp_path) == ["it", "it/new"]


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


def test_where_nothing_may_be_written_the_error_is_gleaks_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ArtifactError, match="could not be written"),
        whole_folder(tmp_path / "file/it"),
    ):
        pass
