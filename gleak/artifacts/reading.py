"""Validated reading of artifacts: no content is trusted before it has been checked.

A file may be damaged or malicious: shapes larger than any memory, links to other files, types that
run code or hide other values. Anything that no artifact contains is rejected before it is read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gleak.artifacts.integrity import attribute_of, check_digest, digest_of, is_text
from gleak.core.errors import ArtifactError, DamagedError, RefusedError, nearest
from gleak.core.lazy import h5py

REFUSED = "gleak/refused"
"""Format of the file that replaces a refused artifact; see `gleak.artifacts.store`."""
MOST_COMPRESSED = 1100
"""Maximum compression ratio; that of deflate is 1032."""
SMALL_BYTES = 4096
"""Arrays up to this size are stored uncompressed."""
FILTERS = ("FILTER_DEFLATE", "FILTER_SHUFFLE", "FILTER_FLETCHER32")
DAMAGE = (OSError, LookupError, RuntimeError, ValueError, TypeError, OverflowError, UnicodeError)
"""Errors that h5py raises on damaged files."""
PASSING = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.ESTALE,
        errno.EAGAIN,
        errno.EBUSY,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOLCK,
        errno.ETIMEDOUT,
    }
)
"""Errors of the system, which say nothing of the content of a file."""


@contextmanager
def open_checked(
    path: Path | str, kind: str | None = None, version: int | None = None
) -> Iterator[h5py.File]:
    """Open an artifact for reading after checking its format and version.

    Args:
        path: the HDF5 file.
        kind: expected format; None accepts any.
        version: expected version of the format.

    Raises:
        ArtifactError: missing or unreadable file.
        DamagedError: truncated, foreign or damaged file, or another format or version.
        RefusedError: the file records the refusal of the expected artifact.
    """
    try:
        if not Path(path).is_file():
            raise ArtifactError(f"{path}: no such file")
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        file = h5py.File(path, "r", locking=False)  # Files are renamed into place when whole.
    except DAMAGE as error:
        _check_readable(path, error)
        raise DamagedError(path, f"not a complete HDF5 file ({error})") from None
    with file:
        try:
            written, number = attribute_of(file, "format"), attribute_of(file, "format_version")
            if not str(written).startswith("gleak/"):
                raise DamagedError(path, "an HDF5 file, but not written by gleak")
            if kind is not None and written != REFUSED and (written, number) != (kind, version):
                fault = f"contains {written} version {number}, expected {kind} version {version}"
                raise DamagedError(path, fault)
            check_digest(file)
            if kind not in (None, REFUSED) and written == REFUSED:
                raise RefusedError(str(load_attributes(file, {"reason": ""})["reason"]))
            yield file
        except DAMAGE as error:
            _check_readable(path, error)
            raise DamagedError(path, f"damaged ({error})") from error


def _check_readable(path: Path | str, error: Exception) -> None:
    """Raise an `ArtifactError` for an error that is the system's, not the file's."""
    if isinstance(error, OSError) and error.errno in PASSING:
        raise ArtifactError(f"{path}: cannot be read ({error})") from None


def content_digest(path: Path | str) -> str:
    """Return the digest that identifies an artifact's content; little of the file is read.

    Raises:
        ArtifactError: the file is not a valid artifact.
    """
    with open_checked(path) as file:
        return digest_of(file)


def load_attributes(file: h5py.File, declared: dict[str, Any]) -> dict[str, Any]:
    """Load root attributes, declared by name and default; one of default None may be absent.

    Raises:
        DamagedError: an attribute is missing.
    """
    values = {name: attribute_of(file, name) for name in declared}
    for name, default in declared.items():
        if values[name] is None and default is not None:
            raise DamagedError(file.filename, f"attribute {name!r} is missing")
    return {name: value for name, value in values.items() if value is not None}


def member(group: h5py.Group, name: str, *kinds: type) -> Any:
    """Return the object of this name in a group; groups are verified here, datasets when loaded.

    Raises:
        DamagedError: missing, a link, or none of these kinds.
    """
    link = group.get(name, getlink=True)
    item = group[name] if isinstance(link, h5py.HardLink) else link
    if not isinstance(item, kinds):
        key = f"{group.name.rstrip('/')}/{name}"
        faults = {h5py.SoftLink: "is a link", h5py.ExternalLink: "is a link to another file"}
        unlike = f"is not a {' or '.join(kind.__name__.lower() for kind in kinds)}"
        fault = "is missing" if item is None else faults.get(type(item), unlike)
        raise DamagedError(group.file.filename, f"{key} {fault}")
    if isinstance(item, h5py.Group):
        check_digest(item)
    return item


def chosen_keys(group: h5py.Group, only: Collection[str] | None) -> list[str]:
    """Return the requested keys of a group in stored order; all if ``only`` is None.

    Raises:
        ArtifactError: a key that does not exist; names the nearest one.
    """
    for key in only or ():
        if key not in group:
            raise ArtifactError(
                f"{group.file.filename}: {group.name} has no {key!r}; {nearest(key, group)}"
            )
    return [key for key in group if only is None or key in only]


def load_array(group: h5py.Group, name: str, select: slice = slice(None)) -> np.ndarray:
    """Load a dataset as an array, text as str; ``select`` slices the leading axis on disk.

    Datasets loaded whole are compared with their digest; for slices every chunk has a checksum.
    """
    dataset = member(group, name, h5py.Dataset)
    check_storage(dataset)
    whole = select == slice(None) or not dataset.ndim
    in_part = not whole and bool(dataset.chunks)
    stored = dataset.asstr() if is_text(dataset.dtype) else dataset
    values = np.asarray(stored[select if in_part else ()])
    values = values.astype(object) if is_text(dataset.dtype) else values
    if in_part:
        return values
    check_digest(dataset, values)
    return values if whole else values[select]


def check_storage(dataset: h5py.Dataset) -> None:
    """Reject a dataset that no artifact contains, or above memory, before it is read."""
    where, made = dataset.file.filename, dataset.id.get_create_plist()
    packed = [made.get_filter(number)[0] for number in range(made.get_nfilters())]
    stored = min(dataset.id.get_storage_size(), Path(where).stat().st_size)
    fault = None
    if dataset.is_virtual or made.get_external_count():
        fault = "stores its values in other files"
    elif dataset.dtype.kind not in "fiubS":
        fault = "contains neither numbers nor strings of fixed length"
    elif not set(packed) <= {getattr(h5py.h5z, name) for name in FILTERS}:
        fault = "uses an unsupported compression"
    elif dataset.nbytes > MOST_COMPRESSED * stored:
        fault = f"claims {dataset.nbytes / 1e9:.3g} GB but stores {stored} bytes"
    if fault:
        raise DamagedError(where, f"{dataset.name} {fault}")
    if dataset.nbytes > _memory():
        raise ArtifactError(
            f"{where}: {dataset.name} has {dataset.nbytes / 1e9:.3g} GB, more than the "
            f"{_memory() / 1e9:.3g} GB of memory of this machine; use a larger machine"
        )


@cache
def _memory() -> int:
    """Return the total memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
