from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import gleak
from gleak.artifacts.integrity import attribute_of, set_attribute
from gleak.artifacts.private import Private
from gleak.artifacts.store import CHUNK_BYTES
from gleak.artifacts.update import Update
from gleak.core.errors import ArtifactError, DamagedError

Forge = Callable[[Path], AbstractContextManager[h5py.File]]
Damage = Callable[[Path], object]
Edit = Callable[[h5py.File], object]


@pytest.fixture
def stored(private: Private, tmp_path: Path) -> Path:
    private.write(tmp_path / "private.h5")
    return tmp_path / "private.h5"


def labels(value: object) -> Edit:
    """Replace the labels by other values, or by a group."""

    def change(file: h5py.File) -> None:
        del file["labels"]
        if value is h5py.Group:
            file.create_group("labels")
        else:
            file["labels"] = value

    return change


def overwrite(path: Path) -> None:
    path.unlink()
    with h5py.File(path, "w") as file:
        file["inputs"] = np.zeros(3)


def without_digest(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file.attrs["digest"]


def edit_unnoticed(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["labels"][0, 0] = 3 - file["labels"][0, 0]


DAMAGES: dict[str, tuple[Damage, str]] = {
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-100]), "not a complete HDF5"),
    "cut short": (lambda path: path.write_bytes(path.read_bytes()[:60]), "not a complete HDF5"),
    "empty": (lambda path: path.write_bytes(b""), "not a complete HDF5"),
    "text": (lambda path: path.write_text("hello"), "not a complete HDF5"),
    "foreign": (overwrite, "not written by gleak"),
    "without digest": (without_digest, "/ has no digest: it was not written by this version"),
    "edited": (edit_unnoticed, "/labels does not match its digest"),
}
FAULTS: dict[str, tuple[Edit, str]] = {
    "other format": (
        lambda file: set_attribute(file, "format", "gleak/model"),
        "contains gleak/model version 1, expected gleak/private version 1",
    ),
    "other version": (
        lambda file: file.attrs.__setitem__("format_version", 99),
        "contains gleak/private version 99, expected gleak/private version 1",
    ),
    "missing key": (lambda file: file.__delitem__("labels"), "/labels is missing"),
    "missing attribute": (
        lambda file: file.attrs.__delitem__("modality"),
        "attribute 'modality' is missing",
    ),
    "group for dataset": (labels(h5py.Group), "/labels is not a dataset"),
    "nan": (
        lambda file: file["inputs"].__setitem__((0, 0, 0, 0, 0), np.nan),
        "/inputs contains 1 values that are NaN",
    ),
    "rank": (labels(np.zeros(3, int)), r"/labels has shape (3,)"),
    "type": (labels(np.zeros((3, 2))), "/labels has type float64, expected int"),
    "victims": (labels(np.zeros((2, 2), int)), "/labels has 2 along 'victim'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_reported_with_file_and_key(stored: Path, damage: str) -> None:
    apply, fault = DAMAGES[damage]
    apply(stored)
    with pytest.raises(DamagedError) as caught:
        Private.read(stored)
    assert str(caught.value).startswith(f"{stored}: ")
    assert fault in str(caught.value)
    assert str(caught.value).endswith("delete it and run again")
    assert caught.value.path == stored


@pytest.mark.parametrize("fault", FAULTS)
def test_content_that_violates_the_format_is_reported(
    stored: Path, forged: Forge, fault: str
) -> None:
    change, text = FAULTS[fault]
    with forged(stored) as file:
        change(file)
    with pytest.raises(ArtifactError) as caught:
        Private.read(stored)
    assert str(caught.value).startswith(f"{stored}: ")
    assert text in str(caught.value)


def test_a_file_that_is_not_there_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"private\.h5: no such file") as caught:
        Private.read(tmp_path / "private.h5")
    assert not isinstance(caught.value, DamagedError)


def test_a_file_that_another_program_has_open_is_read(stored: Path) -> None:
    """HDF5 would wait for no lock, and call the file unreadable."""
    with stored.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        Private.read(stored)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE, errno.EACCES])
def test_an_error_of_the_system_is_not_called_damage(
    stored: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("gleak.artifacts.reading.h5py.File", fail)
    with pytest.raises(ArtifactError, match=r"private\.h5: cannot be read") as caught:
        Private.read(stored)
    assert not isinstance(caught.value, DamagedError)


def test_invalid_content_is_never_written(private: Private, tmp_path: Path) -> None:
    odd = replace(private, labels=private.labels[:2])
    with pytest.raises(ArtifactError, match=r"new/p\.h5: /labels has 2 along 'victim'"):
        odd.write(tmp_path / "new" / "p.h5")
    assert not (tmp_path / "new").exists()


def test_nothing_volatile_is_stored(private: Private, tmp_path: Path) -> None:
    large = replace(private, inputs=np.zeros((3, 2, 3, 40, 40), np.float32))
    large.write(tmp_path / "one.h5")
    large.write(tmp_path / "two.h5")
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()
    with h5py.File(tmp_path / "one.h5") as file:
        times = [h5py.h5g.get_objinfo(file[key].id).mtime for key in file]
    assert times == [0] * len(times)


def test_a_file_has_format_and_version(stored: Path) -> None:
    with h5py.File(stored) as file:
        attributes = {name: attribute_of(file, name) for name in file.attrs}
        assert len(bytes.fromhex(attributes.pop("digest"))) == 8
        assert attributes == {
            "format": "gleak/private",
            "format_version": 1,
            "spec": "digits/lenet",
            "seed": 7,
            "modality": "image",
        }
        assert attribute_of(file["inputs"], "dims") == "victim sample channel height width"
        assert all(dataset.attrs["units"] for dataset in file.values())


def test_large_arrays_are_compressed_in_small_chunks(private: Private, tmp_path: Path) -> None:
    replace(private, inputs=np.zeros((3, 2, 3, 512, 512))).write(tmp_path / "file.h5")
    with h5py.File(tmp_path / "file.h5") as file:
        inputs = file["inputs"]
        assert (inputs.compression, inputs.shuffle) == ("gzip", True)
        assert inputs.chunks[0] == 1
        assert np.prod(inputs.chunks) * 8 <= CHUNK_BYTES
        assert file["labels"].compression is None


def test_a_part_costs_only_its_own_bytes(
    update: Update, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update.write(tmp_path / "update.h5")
    loaded: list[int] = []
    original = h5py.Dataset.__getitem__

    def counting(dataset: h5py.Dataset, part: object) -> np.ndarray:
        values = original(dataset, part)
        loaded.append(np.asarray(values).nbytes)
        return values

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counting)
    Update.read(tmp_path / "update.h5")
    whole, loaded[:] = sum(loaded), []
    part = Update.read(tmp_path / "update.h5", only=["features.0.weight"], victims=slice(1, 2))
    assert {name: each.decode().shape for name, each in part.update.items()} == {
        "features.0.weight": (1, 2, 6, 3, 5, 5)
    }
    assert sum(loaded) == 2 * 6 * 3 * 5 * 5 * 4
    assert whole > 3 * sum(loaded)


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_folder_that_is_a_file_is_reported(private: Private, tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArtifactError, match=r"p\.h5: could not be written .*run again"):
        private.write(tmp_path / folder / "p.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_only_its_owner_can_read_an_artifact(private: Private, tmp_path: Path) -> None:
    private.write(tmp_path / "private.h5")
    assert (tmp_path / "private.h5").stat().st_mode & 0o777 == 0o600


def test_no_permission_is_reported(
    private: Private, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored.read_bytes()

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("gleak.artifacts.store.HeldErrors", refuse)
    with pytest.raises(ArtifactError, match=r"private\.h5: could not be written .*Permission"):
        private.write(stored)
    assert stored.read_bytes() == before

    def locked(*_: object, **__: object) -> h5py.File:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gleak.core.lazy.h5py.File", locked)
    with pytest.raises(ArtifactError, match=r"private\.h5: cannot be read .*Permission"):
        Private.read(stored)


FULL_DISK = """
import resource, signal, sys
import numpy as np
from gleak.artifacts.private import Private
from gleak.core.errors import ArtifactError, DamagedError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
images = np.random.default_rng(0).random((4, 8, 3, 32, 32), dtype=np.float32)
numbers = np.zeros((4, 8), int)
try:
    Private(inputs=images, labels=numbers, indices=numbers).write(sys.argv[1])
except ArtifactError as error:
    print(error)
Private(inputs=images[:, :, :, :4, :4], labels=numbers, indices=numbers).write(sys.argv[2])
"""


def test_a_full_disk_leaves_nothing_and_spares_the_old_file(stored: Path) -> None:
    before, second = stored.read_bytes(), stored.with_name("second.h5")
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(stored), str(second)],
        cwd=Path(gleak.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"{stored}: could not be written" in ended.stdout
    assert "File too large" in ended.stdout
    assert sorted(path.name for path in stored.parent.iterdir()) == ["private.h5", "second.h5"]
    assert stored.read_bytes() == before
    assert Private.read(second).inputs.shape == (4, 8, 3, 4, 4)
