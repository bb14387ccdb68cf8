"""Edits of an artifact by one who knows HDF5 and gleak's digests: each leaves a file that opens."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h5py
import numpy as np

from gleak.artifacts.integrity import digest_values, is_text, seal, seal_group, set_attribute

LARGEST_SEALED = 2**20
TYPES = [
    "f2",
    "f4",
    "f8",
    "i1",
    "u1",
    "i2",
    "i4",
    "i8",
    "u8",
    ">i4",
    ">f8",
    "?",
    "c8",
    "S1",
    "S9",
    "V3",
]
SIZES = (0, 1, 2, 3, 4, 7, 2**10, 2**20, 2**31, 2**33, 2**62)
NUMBERS = (0, 1, -1, 2, 255, -(2**31), 2**32, 2**62, -(2**63), 0.5, 1e308, np.nan, np.inf)
TEXTS = ("", "a", "\0", "é" * 40, "gleak/update", "dense", "sparse", "victim round", "{}", "x" * 9)
NAMES = ("labels", "inputs", "values", "shape", "indices", "update", "a/b", "\n", "é", "0.weight")
Source = Any
"""An `atheris.FuzzedDataProvider`, or what has its methods."""
Edit = Callable[[h5py.File, h5py.HLObject, Source], object]


def forge(seed: bytes, source: Source) -> bytes:
    """The bytes of a file after some edits, with digests of what it is then."""
    buffer = io.BytesIO(seed)
    with h5py.File(buffer, "r+") as file:
        for _ in range(source.ConsumeIntInRange(1, 4)):
            edit: Edit = EDITS[pick(source, sorted(EDITS))]
            with suppress(Exception):  # an edit that cannot be made is left out
                edit(file, pick(source, objects(file)), source)
        if source.ConsumeIntInRange(0, 15):
            reseal(file)
    return buffer.getvalue()


def pick(source: Source, options: Any) -> Any:
    return options[source.ConsumeIntInRange(0, len(options) - 1)]


def objects(file: h5py.File) -> list[h5py.HLObject]:
    """The root and all below it; links and cycles are not followed."""
    found: list[h5py.HLObject] = [file]
    file.visititems(lambda _, item: found.append(item))
    return found


def reseal(file: h5py.File) -> None:
    """Seal what can be sealed.

    A dataset whose values are too many has no digest of them, nor a virtual one: HDF5 does not
    survive reading one that is made of itself.
    """
    for item in objects(file):
        with suppress(Exception):
            if isinstance(item, h5py.Dataset):
                seal(item, digest_values(values_of(item)) if is_read(item) else b"")
    with suppress(Exception):
        seal_group(file)


def is_read(dataset: h5py.Dataset) -> bool:
    return not dataset.is_virtual and dataset.nbytes <= LARGEST_SEALED


def values_of(dataset: h5py.Dataset) -> np.ndarray:
    return np.asarray(dataset.asstr()[()] if is_text(dataset.dtype) else dataset[()])


def taken(file: h5py.File, item: h5py.HLObject) -> str:
    """The name of an object that is taken out; after that the object has none."""
    name: str = item.name
    del file[name]
    return name


def draw_shape(source: Source) -> tuple[int, ...]:
    return tuple(pick(source, SIZES) for _ in range(source.ConsumeIntInRange(0, 5)))


def draw_values(source: Source) -> np.ndarray:
    shape = tuple(source.ConsumeIntInRange(0, 4) for _ in range(source.ConsumeIntInRange(0, 6)))
    with np.errstate(all="ignore"):
        return np.full(shape, pick(source, NUMBERS)).astype(pick(source, TYPES))


def remove(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    del file[item.name]


def replace_values(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    name = taken(file, item)
    file.create_dataset(name, data=draw_values(source))


def fill(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    item[...] = pick(source, NUMBERS)


def poke(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    flat = item[...].reshape(-1)
    flat[source.ConsumeIntInRange(0, len(flat) - 1)] = pick(source, NUMBERS)
    item[...] = flat.reshape(item.shape)


def claim(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    name = taken(file, item)
    packing = {"compression": pick(source, [None, "gzip", "lzf"]), "fletcher32": True}
    file.create_dataset(
        name,
        draw_shape(source),
        pick(source, TYPES),
        chunks=True,
        fillvalue=pick(source, NUMBERS),
        **(packing if source.ConsumeBool() else {}),
    )


def odd_type(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    lists = np.empty(1, h5py.vlen_dtype("i4"))
    lists[0] = np.arange(2, dtype="i4")
    options = {
        "compound": np.zeros(2, "i4,f8"),
        "texts": np.array(["a", "é"], dtype=h5py.string_dtype()),
        "bytes": np.array([b"\xff", b"\0a"], dtype=h5py.string_dtype(length=2)),
        "enumeration": np.array([0, 7], dtype=h5py.enum_dtype({"no": 0, "yes": 1}, "i1")),
        "references": np.array([file.ref], dtype=h5py.ref_dtype),
        "lists": lists,
        "nothing": h5py.Empty("f4"),
        "opaque": np.zeros(2, "V5"),
        "inner": np.zeros(2, np.dtype([("a", "f4", (3,))])),
    }
    name = taken(file, item)
    file.create_dataset(name, data=options[pick(source, sorted(options))])


def link(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    targets = [
        h5py.SoftLink(pick(source, objects(file)).name),
        h5py.SoftLink("/nowhere"),
        h5py.ExternalLink("/etc/hostname", "/"),
        pick(source, objects(file)),
    ]
    file[taken(file, item)] = pick(source, targets)


def elsewhere(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    name = taken(file, item)
    if source.ConsumeBool():
        file.create_dataset(name, (2, 2), "i8", external=[("/etc/hostname", 0, 32)])
        return
    layout = h5py.VirtualLayout((2, 2), "i8")
    layout[:] = h5py.VirtualSource(".", "/labels", (2, 2))
    file.create_virtual_dataset(name, layout)


def become_group(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    name = taken(file, item)
    file.create_group(name, track_order=source.ConsumeBool())


def add_member(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    group = item if isinstance(item, h5py.Group) else item.parent
    group[pick(source, NAMES)] = draw_values(source)


def rename(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    file.move(item.name, f"{item.parent.name}/{pick(source, NAMES)}")


def copy_over(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    other = pick(source, objects(file))
    file.copy(other, taken(file, item))


def set_one(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    name = pick(source, [*item.attrs, "encoding", "unknown"])
    set_attribute(item, name, pick(source, [*NUMBERS, *TEXTS, True]))


def set_odd(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    name = pick(source, [*item.attrs, "encoding", "unknown", "é"])
    values = [draw_values(source), "of any length", b"\xff\xfe", h5py.Empty("S3"), file.ref]
    item.attrs[name] = pick(source, [*values, np.zeros((), "i4,f8"), np.bytes_(b"\xff")])


def drop_attribute(file: h5py.File, item: h5py.HLObject, source: Source) -> None:
    del item.attrs[pick(source, list(item.attrs))]


EDITS: dict[str, Edit] = {
    edit.__name__: edit
    for edit in (
        remove,
        replace_values,
        fill,
        poke,
        claim,
        odd_type,
        link,
        elsewhere,
        become_group,
        add_member,
        rename,
        copy_over,
        set_one,
        set_odd,
        drop_attribute,
    )
}
