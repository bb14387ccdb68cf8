from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gleak.captures.round_folder import RoundFolder, recorded_fields, rounds_in
from gleak.core.errors import ArtifactError

STATE = {"weight": torch.ones(2)}


def client(folder: Path, name: str, **fields: str) -> Path:
    path = RoundFolder(folder).client(name)
    save_file(STATE, path, fields)
    return path


def test_clients_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    paths = [client(tmp_path, name) for name in ("b", "a")]
    files = RoundFolder(tmp_path).files()
    assert (files.before, files.sent, files.truth) == (
        tmp_path / "before.safetensors",
        paths[::-1],
        [],
    )


def test_a_folder_of_something_else_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no client-\*\.safetensors; give the folder of one"):
        RoundFolder(tmp_path / "captured").files()


def test_the_truth_of_some_clients_is_not_enough(tmp_path: Path) -> None:
    for name in ("a", "b"):
        client(tmp_path, name)
    save_file(STATE, RoundFolder(tmp_path).truth("a"))
    with pytest.raises(ArtifactError, match=r"truth-b\.safetensors: no such file, but other"):
        RoundFolder(tmp_path).files()


def test_other_metadata_is_no_field(tmp_path: Path) -> None:
    path = client(tmp_path, "a", local_lr="0.1", format="pt", victims="4")
    assert recorded_fields([path]) == {"local_lr": "0.1"}


def test_clients_with_other_fields_are_named(tmp_path: Path) -> None:
    paths = [client(tmp_path, "a", local_lr="0.1"), client(tmp_path, "b", local_lr="0.2")]
    with pytest.raises(ArtifactError, match=r"client-b\.safetensors: local_lr is 0\.2, but 0\.1"):
        recorded_fields(paths)


def test_the_rounds_of_a_training_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("round-10", "round-2", "round-old", "truth"):
        (tmp_path / name).mkdir()
    (tmp_path / "round-3").touch()
    folders = [tmp_path / "round-2", tmp_path / "round-10"]
    assert rounds_in(tmp_path) == dict(zip((2, 10), map(RoundFolder, folders), strict=True))
    with pytest.raises(ArtifactError, match="no folder round-<number>"):
        rounds_in(tmp_path / "truth")
