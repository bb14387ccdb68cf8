"""Base of the file formats: atomic writing, validated reading.

A file is written under a temporary name, read back and validated, then renamed. Only its owner can
read it, since all but models hold samples or what reveals them. It contains nothing volatile (time,
host), so equal content gives equal bytes. It is written array by array, and never whole in memory.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from gleak.artifacts.atomic import atomic
from gleak.artifacts.integrity import digest_values, seal, seal_group, set_attribute
from gleak.artifacts.reading import (
    REFUSED,
    SMALL_BYTES,
    chosen_keys,
    load_array,
    load_attributes,
    member,
    open_checked,
)
from gleak.artifacts.schema import (
    ArraySchema,
    array_fields,
    attribute,
    attribute_fields,
    check,
    dims_of,
)
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.lazy import h5py

CHUNK_BYTES = 2**20  # HDF5 caches this much of a dataset; larger chunks are unpacked repeatedly
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """Base of the file formats: a frozen dataclass whose fields declare the stored content.

    Args:
        spec: canonical specs of the artifact, joined by ``/`` as in its path.
        seed: seed of the run, which tells what clients draw; None in files that an attacker reads,
            but for the secret of the server, which is checked by crafting again.
    """

    format: ClassVar[str]
    version: ClassVar[int] = 1

    spec: str = attribute("")
    seed: int | None = attribute()

    def validate(self, where: str | None = None) -> None:
        """Check the arrays against their declarations.

        Raises:
            ArtifactError: names the artifact, the key and the expected content.
        """
        named = {}
        for name, schema in array_fields(type(self)).items():
            value = getattr(self, name)
            if value is None and schema.optional:
                continue
            entries = value.items() if schema.group else [(None, value)]
            for key, item in entries:
                named[f"/{name}/{key}" if key else f"/{name}"] = (schema, np.asarray(item))
        check(where or self.format, named)

    def write(self, path: Path | str) -> None:
        """Write the artifact atomically, readable by its owner alone.

        Raises:
            ArtifactError: invalid content, no permission, or no space; no partial file remains.
        """
        path = Path(path)
        self.validate(str(path))
        with atomic(path, private=True) as temporary:
            with HeldErrors(temporary, "w+b") as disk:
                with h5py.File(disk, "w") as file:
                    self._store(file)
                    seal_group(file)
                if disk.error:
                    raise disk.error
            type(self).read(temporary)

    @classmethod
    def read(
        cls,
        path: Path | str,
        *,
        only: Collection[str] | None = None,
        victims: slice | None = None,
    ) -> Self:
        """Read and validate an artifact; parts that are not requested are not loaded from disk.

        Args:
            path: the HDF5 file.
            only: keys to load of fields that are groups (parameters of an update).
            victims: range to load of arrays whose first dimension is the victim.

        Raises:
            ArtifactError: missing, truncated, foreign, wrong version, wrong shape, not finite.
        """
        with open_checked(path, cls.format, cls.version) as file:
            attributes = load_attributes(file, attribute_fields(cls))
            loaded = cls._load(file, only, slice(None) if victims is None else victims)
            artifact = cls(**attributes, **loaded)
        artifact.validate(str(path))
        return artifact

    @classmethod
    def _load(cls, file: h5py.File, only: Collection[str] | None, victims: slice) -> dict[str, Any]:
        """Load the arrays by field name."""
        loaded: dict[str, Any] = {}
        for name, schema in array_fields(cls).items():
            select = victims if schema.dims[0] == "victim" else slice(None)
            if schema.optional and name not in file:
                continue
            if schema.group:
                group = member(file, name, h5py.Group)
                keys = chosen_keys(group, only)
                loaded[name] = {key: load_array(group, key, select) for key in keys}
            else:
                loaded[name] = load_array(file, name, select)
        return loaded

    def _attributes(self) -> dict[str, Any]:
        """Return the root attributes by name; those that are None are not stored."""
        return {name: getattr(self, name) for name in attribute_fields(type(self))}

    def _store(self, file: h5py.File) -> None:
        kind = {"format": self.format, "format_version": self.version}
        for name, value in {**kind, **self._attributes()}.items():
            if value is not None:
                set_attribute(file, name, value)
        for name, schema in array_fields(type(self)).items():
            value = getattr(self, name)
            if value is None:
                continue
            if schema.group:
                group = create_group(file, name)
                for key, item in value.items():
                    store_array(group, key, np.asarray(item), schema)
            else:
                store_array(file, name, np.asarray(value), schema)


class HeldErrors(io.FileIO):
    """File that keeps its first error, and from then on writes nothing.

    If the disk is full, HDF5 can neither name the cause nor close the file (it crashes later), so
    the error is to be raised once HDF5 has closed it.
    """

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write all of the data, if there was no error."""
        left = memoryview(data).cast("B")
        with self._held():
            while left and not self.error:
                left = left[super().write(left) :]
        return len(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Change the size, if there was no error."""
        with self._held():
            if not self.error:
                super().truncate(size)
        return self.tell() if size is None else size

    @contextmanager
    def _held(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = error


def create_group(parent: h5py.Group, name: str) -> h5py.Group:
    """Create a group that keeps its keys in insertion order, which is the order of the model."""
    return parent.create_group(name, track_order=True)


def store_array(
    group: h5py.Group, name: str, value: np.ndarray, schema: ArraySchema, **attributes: str
) -> None:
    """Store one array with its dimensions, units, digest and further attributes.

    It is compressed unless it is tiny or declared otherwise. Chunks are small and contiguous in
    memory, so that one victim or a slice of a large parameter is read without the rest. Strings are
    stored at the length of the longest.
    """
    stored, kind = value, value.dtype
    if kind.kind in "OUST":
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in value.flat]
        kind = h5py.string_dtype(length=max([1, *map(len, texts)]))
        stored = np.array(texts, dtype=kind).reshape(value.shape)
    packing: dict[str, Any] = {}
    if schema.packed and stored.nbytes > SMALL_BYTES:
        packing = {"chunks": _chunks(stored), "compression": "gzip", "compression_opts": 1}
        packing |= {"shuffle": True, "fletcher32": True}
    dataset = group.create_dataset(name, data=stored, dtype=kind, **packing)
    dims = " ".join(dims_of(schema, value.ndim))
    for key, text in {"dims": dims, "units": schema.units, **attributes}.items():
        set_attribute(dataset, key, text)
    seal(dataset, digest_values(value))


def _chunks(value: np.ndarray) -> tuple[int, ...]:
    """Return a chunk shape: as many whole trailing dimensions as fit."""
    budget, chunks = CHUNK_BYTES // value.itemsize, []
    for size in reversed(value.shape):
        chunks.append(max(1, min(size, budget)))
        budget //= chunks[-1]
    return tuple(reversed(chunks))


@dataclass(frozen=True, kw_only=True)
class Refused(Artifact):
    """A recorded refusal; reading it as any other artifact raises a `RefusedError` with its reason.

    Args:
        reason: why the artifact cannot be made, and what to change.
    """

    format: ClassVar[str] = REFUSED

    reason: str = attribute("")


@contextmanager
def refusing(*outputs: Path | str) -> Iterator[None]:
    """Write refusals in place of all outputs of a job if its specs are incompatible.

    Jobs that depend on it are refused for the same reason; all others are unaffected.
    """
    try:
        yield
    except IncompatibleError as error:
        reason = " ".join(str(error).split())
        logger.warning("refused: %s", reason)
        for path in outputs:
            Refused(reason=reason).write(path)


def refusal_in(path: Path | str) -> str | None:
    """Return the reason of a refusal; None if the file is missing or another artifact."""
    try:
        return Refused.read(path).reason
    except ArtifactError:
        return None
