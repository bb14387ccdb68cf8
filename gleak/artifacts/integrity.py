"""Digests of what an artifact holds, stored beside it: damage is found when something is read.

Each object of a file has its own in an attribute: a dataset's is of its values and attributes, a
group's of its attributes and of its members' names and digests. So the root's tells one content
from another, and a part is checked without reading the rest. They tell of accidents; who damages a
file on purpose can give it new ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import h5py
import numpy as np

from gleak.core.errors import DamagedError

ATTRIBUTE = "digest"


def digest_values(values: np.ndarray) -> bytes:
    """Of an array's type, shape and content."""
    if values.dtype.kind in "OUST":
        texts = [text.decode() if isinstance(text, bytes) else str(text) for text in values.flat]
        return _hash(json.dumps(["text", values.shape, texts]).encode())
    kind = json.dumps([values.dtype.str, values.shape]).encode()
    return _hash(kind, np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def seal(item: h5py.HLObject, body: bytes) -> None:
    """Store the digest of an object once its attributes are set.

    Args:
        item: a dataset or a group.
        body: of its values or members.
    """
    set_attribute(item, ATTRIBUTE, _digest(item, body))


def seal_group(group: h5py.Group) -> None:
    """Store the digests of a group and of the groups in it, all of whose datasets have theirs."""
    for item in group.values():
        if isinstance(item, h5py.Group):
            seal_group(item)
    seal(group, _members(group))


def check_dataset(dataset: h5py.Dataset, values: np.ndarray) -> None:
    """Compare a dataset's digest with all of its values.

    Raises:
        DamagedError: they differ.
    """
    _check(dataset, digest_values(values))


def check_group(group: h5py.Group) -> None:
    """Compare a group's digest with its attributes and with which members it has.

    Raises:
        DamagedError: they differ.
    """
    _check(group, _members(group))


def digest_of(item: h5py.HLObject) -> str:
    """The digest that an object says it has; "" if it says none."""
    return str(attribute_of(item, ATTRIBUTE) or "")


def set_attribute(item: h5py.HLObject, name: str, value: Any) -> None:
    """Give an object a number, truth value or text; a text has the length that it needs.

    HDF5 keeps texts of any length elsewhere in the file, and may search for ever for one whose
    place is damaged.
    """
    if isinstance(value, str):
        coded = value.encode()
        item.attrs.create(name, coded, dtype=h5py.string_dtype(length=max(1, len(coded))))
    else:
        item.attrs[name] = value


def attribute_of(item: h5py.HLObject, name: str) -> Any:
    """A number, truth value or text that an object has as an attribute, None if there is none.

    Raises:
        DamagedError: it is something else, which no artifact has; it is not read.
    """
    if name not in item.attrs:
        return None
    stored = item.attrs.get_id(name)
    if stored.shape != () or stored.dtype.kind not in "fiubS":
        raise DamagedError(item.file.filename, f"{item.name} has an attribute {name!r} of no use")
    value = item.attrs[name]
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value


def is_text(kind: np.dtype) -> bool:
    """Whether values of this type are texts."""
    return h5py.check_string_dtype(kind) is not None


def _check(item: h5py.HLObject, body: bytes) -> None:
    if not digest_of(item):
        fault = "has no digest: it was made by hand, or by an older gleak"
        raise DamagedError(item.file.filename, f"{item.name} {fault}")
    if digest_of(item) != _digest(item, body):
        raise DamagedError(item.file.filename, f"{item.name} is not what was written")


def _digest(item: h5py.HLObject, body: bytes) -> str:
    attributes = {name: attribute_of(item, name) for name in item.attrs if name != ATTRIBUTE}
    return _hash(json.dumps(attributes, sort_keys=True).encode(), body).hex()


def _members(group: h5py.Group) -> bytes:
    return _hash(json.dumps(list(_named(group))).encode())


def _named(group: h5py.Group) -> Iterator[tuple[str, str]]:
    """Names and digests; a link, which no artifact has, is named and not followed."""
    for name in group:
        link = group.get(name, getlink=True)
        yield name, digest_of(group[name]) if isinstance(link, h5py.HardLink) else "link"


def _hash(*parts: bytes | memoryview) -> bytes:
    state = blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()
