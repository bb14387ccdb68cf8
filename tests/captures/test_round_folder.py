from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gleak.captures.round_folder import (
    Files,
    RoundFolder,
    read_state,
    recorded_fields,
    rounds_in,
    write_samples,
)
from gleak.core.errors import ArtifactError, DataError

STATE = {"weight": torch.ones(2)}


def client(folder: Path, name: str, **fields: str) -> Path:
    path = RoundFolder(folder).client(name)
    save_file(STATE, path, fields)
    return path


def test_clients_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    paths = [client(tmp_path, name) for name in ("b", "a")]
    files = RoundFolder(tmp_path).files()
    assert files == Files(tmp_path / "before.safetensors", paths[::-1], [], [])
    with pytest.raises(ArtifactError, match=r"no client-\*\.safetensors; give the folder of one"):
        RoundFolder(tmp_path / "captured").files()
    save_file(STATE, RoundFolder(tmp_path).truth("a"))
    with pytest.raises(ArtifactError, match=r"truth-b\.safetensors: no such file, but other"):
        RoundFolder(tmp_path).files()


def test_fields_are_recorded_and_clients_with_others_are_named(tmp_path: Path) -> None:
    fields = {"a": {"local_lr": "0.1", "format": "pt", "victims": "4"}, "b": {"local_lr": "0.2"}}
    paths = [client(tmp_path, name, **metadata) for name, metadata in fields.items()]
    assert recorded_fields(paths[:1]) == {"local_lr": "0.1"}
    with pytest.raises(ArtifactError, match=r"client-b\.safetensors: local_lr is 0\.2, but 0\.1"):
        recorded_fields(paths)
    cosine = client(tmp_path, "c", local_lr="0.1", schedule="cosine")
    with pytest.raises(
        ArtifactError, match=r"client-c.*: schedule is cosine, but None in client-a"
    ):
        recorded_fields([paths[0], cosine])


def test_a_bound_that_one_client_has_reached_is_that_of_all(tmp_path: Path) -> None:
    bounds: list[dict[str, str]] = [{}, {"clip_norm": "1"}, {}, {"clip_norm": "2"}]
    paths = [client(tmp_path, str(n), local_lr="0.1", **each) for n, each in enumerate(bounds)]
    assert recorded_fields(paths[:3]) == {"local_lr": "0.1", "clip_norm": "1"}
    with pytest.raises(ArtifactError, match=r"client-3\.safetensors: clip_norm is 2, but 1"):
        recorded_fields(paths)


@pytest.mark.parametrize("shape", [(3,), (1, 5, 7), (3, 32, 32)])
def test_samples_of_steps_are_one_array_for_every_reader(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    random = torch.Generator().manual_seed(0)
    inputs = [torch.rand(number, *shape, generator=random) for number in (4, 4, 1)]
    labels = [torch.arange(number) for number in (4, 4, 1)]
    path = tmp_path / "truth-a.safetensors"
    write_samples(path, iter(inputs), labels)
    found = load_file(path)
    assert torch.equal(found["inputs"], torch.cat(inputs))
    assert torch.equal(found["labels"], torch.cat(labels))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("shape", "labels"), [((2, 5), 2), ((2, 4), 1)])
def test_samples_that_do_not_fit_together_leave_no_file(
    tmp_path: Path, shape: tuple[int, ...], labels: int
) -> None:
    inputs = [torch.rand(2, 4), torch.rand(shape)]
    with pytest.raises(DataError, match="a label each"):
        write_samples(tmp_path / "truth", inputs, [torch.arange(2), torch.arange(labels)])
    assert not [*tmp_path.iterdir()]


def test_the_rounds_of_a_training_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("round-10", "round-2", "round-old", "truth"):
        (tmp_path / name).mkdir()
    (tmp_path / "round-3").touch()
    folders = [tmp_path / "round-2", tmp_path / "round-10"]
    assert rounds_in(tmp_path) == dict(zip((2, 10), map(RoundFolder, folders), strict=True))
    with pytest.raises(ArtifactError, match="no folder round-<number>"):
        rounds_in(tmp_path / "truth")


WEIGHTS = {"0.weight": torch.arange(6.0).reshape(2, 3)}


class Bomb:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.file,)


def test_what_is_no_safetensors_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"none\.safetensors: no such file"):
        read_state(tmp_path / "none.safetensors")
    (tmp_path / "state.safetensors").write_bytes(b"\x10" + bytes(30))
    with pytest.raises(ArtifactError, match="not a complete safetensors file"):
        read_state(tmp_path / "state.safetensors")


@pytest.mark.parametrize("name", ["state.safetensors", "state.pkl"])
def test_no_code_in_a_pickle_runs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    with pytest.raises(ArtifactError, match="a pickle, which can run any code"):
        read_state(tmp_path / name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"PK", b"", pickle.dumps(STATE["weight"].numpy())])
def test_a_damaged_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.npz").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"state\.npz: not a complete \.npz file"):
        read_state(tmp_path / "state.npz")


def test_no_code_in_an_archive_runs(tmp_path: Path) -> None:
    np.savez(tmp_path / "state.npz", weight=np.array(Bomb(tmp_path / "ran"), dtype=object))
    with pytest.raises(ArtifactError, match=r"not a complete \.npz file of arrays of numbers"):
        read_state(tmp_path / "state.npz")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name",
    [
        'a $(touch ran)\'s "state".pt',
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("state.pth", "state")),
    ],
)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"model": state, "epoch": 3},
        pytest.param(lambda state: {"epoch": 3, "state_dict": state}, marks=pytest.mark.slow),
    ],
)
def test_the_line_that_converts_a_pickle_does(
    tmp_path: Path, name: str, wrap: Callable[[dict[str, Tensor]], object]
) -> None:
    torch.save(wrap(WEIGHTS), tmp_path / name)
    with pytest.raises(ArtifactError) as refused:
        read_state(tmp_path / name)
    _, _, command = str(refused.value).partition("convert it: ")
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(folders)}
    subprocess.run(["bash", "-c", command], env=environment, check=True, cwd=tmp_path)
    found = read_state((tmp_path / name).with_suffix(".safetensors"))
    assert not (tmp_path / "ran").exists()
    assert torch.equal(found["0.weight"], WEIGHTS["0.weight"])
