"""Where there is no home folder, or one that may not be entered, nothing is cached."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gleak.core.errors import ArtifactError
from gleak.runtime.hub_weights import check_file, download, read_weights
from gleak.studies.machine import Speed, read_speed, speed_file, write_speed

ROOT = Path(__file__).parents[2]
NOBODY = "import pwd; pwd.getpwuid = {}.__getitem__"
DIGEST = "from gleak.runtime.source_digest import source_digest; source_digest('gleak.core.spec')"
WRITERS: dict[str, Callable[[], object]] = {
    "speed.json": lambda: write_speed(
        Speed(speed=1.5, host="node7", measured=date(2026, 1, 2)), speed_file()
    ),
    "a-01234567.pth": lambda: download("a-01234567.pth"),
}


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a user of whom nothing is known."""
    for name in ("HOME", "XDG_CACHE_HOME", "TORCH_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("file", WRITERS)
def test_without_a_home_folder_writing_says_what_to_set(homeless: Path, file: str) -> None:
    with pytest.raises(ArtifactError, match=rf"{file} cannot be written: .*set HOME"):
        WRITERS[file]()
    assert list(homeless.iterdir()) == []


def test_without_a_home_folder_the_workflow_computes_its_digests(homeless: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", f"{NOBODY}; {DIGEST}"], env={"PYTHONPATH": str(ROOT)}, check=True
    )
    assert list(homeless.iterdir()) == []


def test_without_a_home_folder_weights_are_missing(homeless: Path) -> None:
    assert read_speed(speed_file()) is None
    for read in (check_file, read_weights):
        with pytest.raises(ArtifactError, match="set TORCH_HOME"):
            read("a.pth")


def test_a_home_folder_that_may_not_be_entered_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Any, *arguments: Any, **keys: Any) -> os.stat_result:
        if str(path).startswith(f"{tmp_path}/"):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *arguments, **keys)

    stat = os.stat
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCH_HOME", raising=False)
    monkeypatch.setattr(os, "stat", refused)
    assert read_speed(speed_file()) is None
    for read in (check_file, read_weights):
        with pytest.raises(ArtifactError, match="set TORCH_HOME"):
            read("a.pth")
