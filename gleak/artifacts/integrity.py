"""Digests of artifact contents, stored with them, so that damage is detected on reading.

Every HDF5 object has a digest in an attribute: that of a dataset covers its values and attributes,
that of a group its attributes and the names and digests of its members. The root's digest thus
identifies the whole content, and each part can be verified without reading the rest. Digests detect
accidental damage; whoever edits a file on purpose can also recompute them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np

from gleak.core.errors import DamagedError
from gleak.core.lazy import h5py

ATTRIBUTE = "digest"
DIGEST = ATTRIBUTE.encode()


def digest_values(values: np.ndarray) -> bytes:
    """Compute the digest of an array's type, shape and values."""
    if values.dtype.kind in "OUST":
        texts = [text.decode() if isinstance(text, bytes) else str(text) for text in values.flat]
        return _hash(json.dumps(["text", values.shape, texts]).encode())
    kind = json.dumps([values.dtype.str, values.shape]).encode()
    return _hash(kind, np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def seal(item: h5py.HLObject, body: bytes) -> None:
    """Store the digest of an object whose attributes are complete.

    Args:
        item: a dataset or a group.
        body: digest of its values or members.
    """
    set_attribute(item, ATTRIBUTE, _digest(item, body))


def seal_group(group: h5py.Group) -> None:
    """Store the digests of a group and its subgroups, whose datasets must already have theirs."""
    for item in group.values():
        if isinstance(item, h5py.Group):
            seal_group(item)
    seal(group, _members(group))


def check_dataset(dataset: h5py.Dataset, values: np.ndarray) -> None:
    """Compare a dataset's digest with its values and attributes.

    Raises:
        DamagedError: they differ.
    """
    _check(dataset, digest_values(values))


def check_group(group: h5py.Group) -> None:
    """Compare a group's digest with its attributes and members.

    Raises:
        DamagedError: they differ.
    """
    _check(group, _members(group))


def digest_of(item: h5py.HLObject) -> str:
    """Return the stored digest of an object; "" if it has none."""
    return str(attribute_of(item, ATTRIBUTE) or "")


def set_attribute(item: h5py.HLObject, name: str, value: Any) -> None:
    """Store a number, boolean or string as an attribute; strings are stored at fixed length.

    HDF5 stores strings of variable length elsewhere in the file, and may search endlessly for one
    whose reference is damaged.
    """
    if isinstance(value, str):
        coded = value.encode()
        item.attrs.create(name, coded, dtype=h5py.string_dtype(length=max(1, len(coded))))
    else:
        item.attrs[name] = value


def attribute_of(item: h5py.HLObject, name: str) -> Any:
    """Return a number, boolean or string stored as an attribute, None if it is absent.

    Raises:
        DamagedError: an attribute of another type or shape, which no artifact has; it is not read.
    """
    key = name.encode()
    return _read(item, h5py.h5a.open(item.id, key)) if h5py.h5a.exists(item.id, key) else None


def _read(item: h5py.HLObject, attribute: h5py.h5a.AttrID) -> Any:
    """Read a scalar attribute by h5py's low-level interface, since files have many of them."""
    scalar = attribute.get_space().get_simple_extent_type() == h5py.h5s.SCALAR
    if not scalar or attribute.dtype.kind not in "fiubS":
        name = attribute.name.decode(errors="replace")
        raise DamagedError(
            item.file.filename, f"attribute {name!r} of {item.name} has an unsupported type"
        )
    read = np.zeros((), attribute.dtype)
    attribute.read(read)
    value = read.item()
    return value.decode() if isinstance(value, bytes) else value


def is_text(kind: np.dtype) -> bool:
    """Return True if a dtype is that of strings."""
    return h5py.check_string_dtype(kind) is not None


def _check(item: h5py.HLObject, body: bytes) -> None:
    stored = digest_of(item)
    if not stored:
        fault = "has no digest: it was not written by this version of gleak"
        raise DamagedError(item.file.filename, f"{item.name} {fault}")
    if stored != _digest(item, body):
        raise DamagedError(item.file.filename, f"{item.name} does not match its digest")


def _digest(item: h5py.HLObject, body: bytes) -> str:
    count = h5py.h5a.get_num_attrs(item.id)
    opened = (h5py.h5a.open(item.id, index=index) for index in range(count))
    attributes = {each.name.decode(): _read(item, each) for each in opened if each.name != DIGEST}
    return _hash(json.dumps(attributes, sort_keys=True).encode(), body).hex()


def _members(group: h5py.Group) -> bytes:
    return _hash(json.dumps(list(_named(group))).encode())


def _named(group: h5py.Group) -> Iterator[tuple[str, str]]:
    """Yield names and digests of members; links, which no artifact has, are not followed."""
    for name in group:
        link = group.get(name, getlink=True)
        yield name, digest_of(group[name]) if isinstance(link, h5py.HardLink) else "link"


def _hash(*parts: bytes | memoryview) -> bytes:
    state = blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()
