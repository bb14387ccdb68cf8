from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gleak.captures.states import read_state
from gleak.core.errors import ArtifactError

STATE = {"0.weight": torch.arange(6.0).reshape(2, 3)}


class Bomb:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.file,)


def test_tensors_are_read_by_name(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / "state.safetensors")
    assert torch.equal(read_state(tmp_path / "state.safetensors")["0.weight"], STATE["0.weight"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"none\.safetensors: no such file"):
        read_state(tmp_path / "none.safetensors")


def test_what_is_no_safetensors_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.safetensors").write_bytes(b"\x10" + bytes(30))
    with pytest.raises(ArtifactError, match="not a complete safetensors file"):
        read_state(tmp_path / "state.safetensors")


@pytest.mark.parametrize("name", ["state.safetensors", "state.pkl"])
def test_no_code_in_a_pickle_runs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    with pytest.raises(ArtifactError, match="a pickle, which can run any code"):
        read_state(tmp_path / name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name",
    [
        'a $(touch ran)\'s "state".pt',
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("state.pth", "state")),
    ],
)
def test_the_line_that_converts_a_pickle_does(tmp_path: Path, name: str) -> None:
    torch.save(STATE, tmp_path / name)
    with pytest.raises(ArtifactError) as refused:
        read_state(tmp_path / name)
    _, _, command = str(refused.value).partition("convert it: ")
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(folders)}
    subprocess.run(["bash", "-c", command], env=environment, check=True, cwd=tmp_path)
    found = read_state((tmp_path / name).with_suffix(".safetensors"))
    assert not (tmp_path / "ran").exists()
    assert torch.equal(found["0.weight"], STATE["0.weight"])
