"""Digests of artifact contents, stored with them, so that damage is detected on reading.

The digest of a dataset covers its values and attributes, that of a group its attributes and the
names and digests of its members. The root's digest thus identifies the whole content, and each part
can be verified without the rest. Whoever edits a file on purpose can also recompute its digests.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import numpy as np

from gleak.core.errors import DamagedError
from gleak.core.lazy import h5py

ATTRIBUTE = "digest"


def digest_values(values: np.ndarray) -> bytes:
    """Compute the digest of an array's type, shape and values."""
    if values.dtype.kind in "OUST":
        texts = [text.decode() if isinstance(text, bytes) else str(text) for text in values.flat]
        return _hash(json.dumps(["text", values.shape, texts]).encode())
    kind = json.dumps([values.dtype.str, values.shape]).encode()
    return _hash(kind, np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def seal(item: h5py.HLObject, body: bytes) -> None:
    """Store the digest of an object with complete attributes; ``body``: of values or members."""
    set_attribute(item, ATTRIBUTE, _digest(item, body))


def seal_group(group: h5py.Group) -> None:
    """Store the digests of a group and its subgroups, whose datasets must already have theirs."""
    for item in group.values():
        if isinstance(item, h5py.Group):
            seal_group(item)
    seal(group, _members(group))


def check_digest(item: h5py.HLObject, values: np.ndarray | None = None) -> None:
    """Compare an object's digest with its attributes and its values, or a group's members.

    Raises:
        DamagedError: they differ.
    """
    _check(item, _members(item) if values is None else digest_values(values))


def _check(item: h5py.HLObject, body: bytes) -> None:
    stored = digest_of(item)
    if not stored:
        fault = "has no digest: it was not written by this version of gleak"
        raise DamagedError(item.file.filename, f"{item.name} {fault}")
    if stored != _digest(item, body):
        raise DamagedError(item.file.filename, f"{item.name} does not match its digest")


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

    Others, which no artifact has, are refused before they are read.
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


def _digest(item: h5py.HLObject, body: bytes) -> str:
    count = h5py.h5a.get_num_attrs(item.id)
    opened = (h5py.h5a.open(item.id, index=index) for index in range(count))
    attributes = {a.name.decode(): _read(item, a) for a in opened if a.name != ATTRIBUTE.encode()}
    return _hash(json.dumps(attributes, sort_keys=True).encode(), body).hex()


def _members(group: h5py.Group) -> bytes:
    """Compute the digest of members; links, which no artifact has, are not followed."""
    links = {name: group.get(name, getlink=True) for name in group}
    named = [
        (name, digest_of(group[name]) if isinstance(link, h5py.HardLink) else "link")
        for name, link in links.items()
    ]
    return _hash(json.dumps(named).encode())


def _hash(*parts: bytes | memoryview) -> bytes:
    state = blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()
