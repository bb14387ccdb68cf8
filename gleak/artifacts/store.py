"""Reading and writing artifacts: whole under their final name, checked both ways.

A file is written under a temporary name in the same folder, flushed to disk, read back and
validated, then renamed; a failure leaves nothing behind. Nothing volatile (time, host) goes in, so
equal content gives equal bytes. HDF5 builds the file in memory and plain writes put it on disk:
told that the disk is full, HDF5 can neither name the cause nor close the file (it crashes later).
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import h5py
import numpy as np

from gleak.artifacts.schema import (
    ArraySchema,
    array_fields,
    attribute,
    attribute_fields,
    check,
    dims_of,
)
from gleak.errors import ArtifactError, nearest

CHUNK_BYTES = 2**20  # what HDF5 keeps of a dataset while reading; larger chunks are unpacked anew
SMALL_BYTES = 4096
AGAIN = "delete it and run again"


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """Base of the file formats: a frozen dataclass whose fields declare what is stored.

    Args:
        spec: the canonical specs that made it, joined by ``/`` as in its path.
        seed: the seed it was made under; None in what an attacker sees, which must not tell it.
    """

    format: ClassVar[str]
    version: ClassVar[int] = 1

    spec: str = attribute("")
    seed: int | None = attribute()

    def validate(self, where: str | None = None) -> None:
        """Check the arrays against their declarations.

        Raises:
            ArtifactError: names the artifact, the key and what was expected.
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
        """Write the artifact; the final name appears only when the file is whole.

        Raises:
            ArtifactError: invalid content, no permission, or no space; nothing is left behind.
        """
        path = Path(path)
        self.validate(str(path))
        with atomic(path) as temporary:
            temporary.write_bytes(self._packed())
            type(self).read(temporary)

    @classmethod
    def read(
        cls,
        path: Path | str,
        *,
        only: Collection[str] | None = None,
        victims: slice | None = None,
    ) -> Self:
        """Read and validate; parts that are not asked for are not loaded from disk.

        Args:
            path: the HDF5 file.
            only: of fields that are groups, load these keys alone (a parameter of an update).
            victims: of arrays that begin with the victim dimension, load this range alone.

        Raises:
            ArtifactError: missing, truncated, foreign, wrong version, wrong shape, not finite.
        """
        with open_checked(path, cls) as file:
            select = slice(None) if victims is None else victims
            artifact = cls(**_load_attributes(file, cls), **cls._load(file, only, select))
        artifact.validate(str(path))
        return artifact

    @classmethod
    def _load(cls, file: h5py.File, only: Collection[str] | None, victims: slice) -> dict[str, Any]:
        """The arrays by field name."""
        return {
            name: _load_field(file, name, schema, only, victims)
            for name, schema in array_fields(cls).items()
        }

    def _packed(self) -> memoryview:
        """The bytes of the file."""
        buffer = io.BytesIO()
        with h5py.File(buffer, "w") as file:
            self._store(file)
        return buffer.getbuffer()

    def _store(self, file: h5py.File) -> None:
        file.attrs["format"] = self.format
        file.attrs["format_version"] = self.version
        for name in attribute_fields(type(self)):
            if getattr(self, name) is not None:
                file.attrs[name] = getattr(self, name)
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


def create_group(parent: h5py.Group, name: str) -> h5py.Group:
    """A group that lists its keys in the order they were stored, which is that of the model."""
    return parent.create_group(name, track_order=True)


def store_array(
    group: h5py.Group, name: str, value: np.ndarray, schema: ArraySchema
) -> h5py.Dataset:
    """Store one array with its dimensions and units; compressed unless it is tiny.

    Chunks are small parts that follow each other in memory, so one victim or a part of a large
    parameter is read without the rest.
    """
    if value.dtype.kind in "OUST":
        value = value.astype(object)
        dataset = group.create_dataset(name, data=value, dtype=h5py.string_dtype())
    elif value.nbytes <= SMALL_BYTES:
        dataset = group.create_dataset(name, data=value)
    else:
        dataset = group.create_dataset(
            name,
            data=value,
            chunks=_chunks(value),
            compression="gzip",
            compression_opts=1,
            shuffle=True,
        )
    dataset.attrs["dims"] = " ".join(dims_of(schema, value.ndim))
    dataset.attrs["units"] = schema.units
    return dataset


def _chunks(value: np.ndarray) -> tuple[int, ...]:
    """Whole trailing dimensions, as many as fit; at least one entry of the others."""
    budget, chunks = CHUNK_BYTES // value.itemsize, []
    for size in reversed(value.shape):
        chunks.append(max(1, min(size, budget)))
        budget //= chunks[-1]
    return tuple(reversed(chunks))


def _load_attributes(file: h5py.File, cls: type[Artifact]) -> dict[str, Any]:
    declared = attribute_fields(cls)
    for name, default in declared.items():
        if name not in file.attrs and default is not None:
            raise ArtifactError(f"{file.filename}: attribute {name!r} is missing; {AGAIN}")
    return {name: _plain(file.attrs[name]) for name in declared if name in file.attrs}


def _load_field(
    file: h5py.File,
    name: str,
    schema: ArraySchema,
    only: Collection[str] | None,
    victims: slice,
) -> Any:
    if schema.optional and name not in file:
        return None
    select = victims if schema.dims[0] == "victim" else slice(None)
    if not schema.group:
        return load_array(file, name, select)
    group = member(file, name, h5py.Group)
    return {key: load_array(group, key, select) for key in chosen_keys(group, only)}


def member(group: h5py.Group, name: str, kind: type) -> Any:
    """What a group holds under a name.

    Raises:
        ArtifactError: nothing there, or a group where a dataset belongs.
    """
    found = group.get(name)
    if not isinstance(found, kind):
        key = f"{group.name.rstrip('/')}/{name}"
        fault = "is missing" if found is None else f"is not a {kind.__name__.lower()}"
        raise ArtifactError(f"{group.file.filename}: {key} {fault}; {AGAIN}")
    return found


def chosen_keys(group: h5py.Group, only: Collection[str] | None) -> list[str]:
    """The keys of a group that are asked for, in the order stored; all if ``only`` is None.

    Raises:
        ArtifactError: a key that is not there; the error gives the nearest one.
    """
    for key in only or ():
        if key not in group:
            raise ArtifactError(
                f"{group.file.filename}: {group.name} has no {key!r}; {nearest(key, group)}"
            )
    return [key for key in group if only is None or key in only]


def load_array(group: h5py.Group, name: str, select: slice = slice(None)) -> np.ndarray:
    """One dataset as an array, text as str; ``select`` cuts the leading dimension on disk.

    Raises:
        ArtifactError: no such dataset.
    """
    dataset = member(group, name, h5py.Dataset)
    part = select if dataset.ndim else ()
    if h5py.check_string_dtype(dataset.dtype):
        return np.asarray(dataset.asstr()[part], dtype=object)
    return np.asarray(dataset[part])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def open_checked(path: Path | str, cls: type[Artifact] | None = None) -> Iterator[h5py.File]:
    """Open an artifact for reading after checking that it is one, of this class and version.

    Raises:
        ArtifactError: missing, truncated, foreign, or of another format or version.
    """
    if not Path(path).is_file():
        raise ArtifactError(f"{path}: no such file")
    try:
        file = h5py.File(path, "r")
    except PermissionError as error:
        raise ArtifactError(f"{path}: may not be read ({error})") from None
    except OSError as error:
        raise ArtifactError(f"{path}: not a whole HDF5 file ({error}); {AGAIN}") from None
    with file:
        found = (_plain(file.attrs.get("format")), _plain(file.attrs.get("format_version")))
        if not str(found[0]).startswith("gleak/"):
            raise ArtifactError(f"{path}: an HDF5 file, but not one that gleak wrote")
        if cls is not None and found != (cls.format, cls.version):
            raise ArtifactError(
                f"{path}: holds {found[0]} version {found[1]}, "
                f"expected {cls.format} version {cls.version}; "
                f"{AGAIN if found[0] == cls.format else 'give a file of that format'}"
            )
        try:
            yield file
        except (OSError, KeyError, RuntimeError) as error:
            raise ArtifactError(f"{path}: damaged ({error}); {AGAIN}") from error


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """Give a temporary name in the same folder; rename it to ``path`` when the block succeeds.

    Raises:
        ArtifactError: no permission or no space; the temporary file is removed.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left_by_a_killed_job in path.parent.glob(f".{path.name}.*.partial"):
            left_by_a_killed_job.unlink()
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ArtifactError(f"{path}: could not be written ({error}); nothing was kept") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
