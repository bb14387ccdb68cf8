"""Files made to harm are refused before anything of them is read; see `gleak.artifacts.reading`."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from gleak.artifacts.encodings import Sparse
from gleak.artifacts.inspect import describe_file
from gleak.artifacts.integrity import _members, seal, seal_group, set_attribute
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.core.errors import ArtifactError, DamagedError

Forge = Callable[[Path], AbstractContextManager[h5py.File]]
HUGE = (2**20, 2**10, 2**10)


@pytest.fixture
def stored(private: Private, tmp_path: Path) -> Path:
    private.write(tmp_path / "private.h5")
    return tmp_path / "private.h5"


def stored_as(*arguments: Any, **options: Any) -> Callable[[h5py.File], object]:
    return lambda file: file.create_dataset("labels", *arguments, **options)


def named_as(item: Any) -> Callable[[h5py.File], object]:
    return lambda file: file.__setitem__("labels", item)


def outside(file: h5py.File) -> None:
    other = Path(file.filename).with_name("other.bin")
    other.write_bytes(bytes(48))
    file.create_dataset("labels", (3, 2), "i8", external=[(str(other), 0, 48)])


def virtual(source: str) -> Callable[[h5py.File], object]:
    """HDF5 does not survive reading a dataset that is made of itself."""
    layout = h5py.VirtualLayout((3, 2), "i8")
    layout[:] = h5py.VirtualSource(".", source, (3, 2))
    return lambda file: file.create_virtual_dataset("labels", layout)


def without_level(file: h5py.File) -> None:
    """Packed, and not said how hard, which HDF5 allows and h5py does not expect."""
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((3, 2))
    made.set_filter(h5py.h5z.FILTER_DEFLATE, 0, ())
    space = h5py.h5s.create_simple((3, 2))
    stored = h5py.h5d.create(file.id, b"labels", h5py.h5t.STD_I64LE, space, made)
    stored.write_direct_chunk((0, 0), zlib.compress(bytes(48)))


ELSEWHERE = "/labels stores its values in other files"
NEITHER = "/labels contains neither numbers nor strings"
NUMBERS = np.zeros((3, 2), int)
HOSTILE: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "huge": (stored_as(HUGE, "i8", chunks=(1, 64, 64)), "claims 8.8e+03 GB but stores 0 bytes"),
    "soft link": (named_as(h5py.SoftLink("/indices")), "/labels is a link"),
    "external link": (
        named_as(h5py.ExternalLink("/etc/hostname", "/")),
        "/labels is a link to another file",
    ),
    "cycle": (lambda file: named_as(file["/"])(file), "/ does not match its digest"),
    "other files": (outside, ELSEWHERE),
    "virtual": (virtual("/indices"), ELSEWHERE),
    "made of itself": (virtual("/labels"), ELSEWHERE),
    "references": (stored_as((3, 2), h5py.ref_dtype), NEITHER),
    "compound": (stored_as(data=np.zeros((3, 2), "i8,f8")), NEITHER),
    "texts of any length": (stored_as(data=[["a", "b"]] * 3), NEITHER),
    "type": (named_as(np.dtype("i8")), "/labels is not a dataset"),
    "packing without level": (without_level, "private.h5: damaged"),
    "packing": (
        stored_as(data=NUMBERS, chunks=(3, 2), compression="lzf"),
        "/labels uses an unsupported compression",
    ),
}


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("kind", HOSTILE)
def test_unsupported_content_is_refused(stored: Path, kind: str) -> None:
    harm, message = HOSTILE[kind]
    with h5py.File(stored, "r+") as file:
        del file["labels"]
        seal_group(file)
        harm(file)
        seal(file, _members(file))
    with pytest.raises(DamagedError) as caught:
        Private.read(stored)
    assert message in str(caught.value)
    with pytest.raises(DamagedError):
        describe_file(stored)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("value", [np.zeros(8000), "of any length"], ids=["many", "text"])
def test_an_attribute_no_artifact_has_is_refused(stored: Path, value: object) -> None:
    with h5py.File(stored, "r+") as file:
        file.attrs["spec"] = value
    with pytest.raises(DamagedError, match=r"attribute 'spec' of / has an unsupported type"):
        Private.read(stored)


@pytest.mark.usefixtures("little_memory")
def test_arrays_larger_than_memory_are_refused(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gleak.artifacts.reading._memory", lambda: 1000)
    with pytest.raises(ArtifactError, match=r"/inputs has .* more than the 1e-06 GB") as caught:
        Private.read(stored)
    assert not isinstance(caught.value, DamagedError)


@pytest.mark.usefixtures("little_memory")
def test_the_shape_a_sparse_parameter_claims_takes_no_memory(
    update: Update, tmp_path: Path
) -> None:
    weight = update.update["classifier.weight"]
    assert isinstance(weight, Sparse)
    claimed = Sparse(weight.indices, weight.values, np.array(HUGE))
    Update(update={"classifier.weight": claimed}).write(tmp_path / "update.h5")
    found = Update.read(tmp_path / "update.h5").update["classifier.weight"]
    assert found.weight_shape == HUGE


@pytest.mark.parametrize("code", ["sparse", "factored"])
def test_a_parameter_of_several_parts_is_a_group(
    update: Update, tmp_path: Path, forged: Forge, code: str
) -> None:
    update.write(tmp_path / "update.h5")
    with forged(tmp_path / "update.h5") as file:
        set_attribute(file["update/head.bias"], "encoding", code)
    with pytest.raises(DamagedError, match=r"/update/head\.bias is not a group"):
        Update.read(tmp_path / "update.h5")


@pytest.mark.parametrize("shape", [(-4, -5), (2**32, 2**32, -1)])
def test_a_shape_is_not_below_zero(update: Update, tmp_path: Path, shape: tuple[int, ...]) -> None:
    for name in ("classifier.weight", "features.1.weight"):
        claimed = replace(update.update[name], shape=np.array(shape))
        with pytest.raises(ArtifactError, match=r"/shape \("):
            Update(update={name: claimed}).write(tmp_path / "update.h5")
