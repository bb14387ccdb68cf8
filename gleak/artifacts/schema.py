"""Array declarations of artifacts: dimensions, units and type of each field.

A dimension name that occurs twice in an artifact (``victim``, say) has one size; ``...`` matches
any number of further dimensions. ``weight...`` matches those of a parameter and ``feature...``
those of a sample, which are named by rank; all samples of an artifact have one shape. `check`
compares arrays with their declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np

from gleak.core.errors import ArtifactError

SPREADS = {
    "weight...": {1: "out", 2: "out in", 3: "out in k", 4: "out in kh kw"},
    "feature...": {1: "feature", 3: "channel height width"},
}
FREE = ("...", "weight...")
KINDS = {"float": "f", "int": "iu", "bool": "b", "number": "fiu", "any": "fiub", "text": "OUST"}


@dataclass(frozen=True)
class ArraySchema:
    """Declaration of one array, or of every array of a group.

    Args:
        dims: names of the dimensions; at most one ends in ``...`` and matches any number of them.
        units: meaning of a value; "1" for a pure number.
        kind: float, int, bool, number (float or int), any (of these) or text.
        group: True if the field is a mapping, stored as an HDF5 group of such arrays.
        optional: True if the field may be None and is then absent from the file.
        finite: True if NaN and infinite values are rejected.
        packed: True if compressed on disk.
    """

    dims: tuple[str, ...]
    units: str
    kind: str
    group: bool = False
    optional: bool = False
    finite: bool = True
    packed: bool = True

    @property
    def spread(self) -> str | None:
        """Name that matches any number of dimensions, None if there is none."""
        return next((name for name in self.dims if name.endswith("...")), None)


def array(dims: str, units: str, kind: str = "float", **others: bool) -> Any:
    """Declare a dataclass field stored as one HDF5 dataset."""
    return _declare(ArraySchema(tuple(dims.split()), units, kind, **others))


def arrays(dims: str, units: str, kind: str = "float", **others: bool) -> Any:
    """Declare a dataclass field stored as an HDF5 group with one dataset per key."""
    return _declare(ArraySchema(tuple(dims.split()), units, kind, group=True, **others))


def _declare(schema: ArraySchema) -> Any:
    return field(metadata={"schema": schema}, default=None if schema.optional else MISSING)


def attribute(default: Any = None) -> Any:
    """Declare a field stored as a root attribute; it may be absent if its default is None."""
    return field(default=default, metadata={"attribute": True})


def array_fields(cls: type) -> dict[str, ArraySchema]:
    """Return the declared arrays of an artifact class, in order."""
    return {f.name: f.metadata["schema"] for f in fields(cls) if "schema" in f.metadata}


def attribute_fields(cls: type) -> dict[str, Any]:
    """Return the declared root attributes of an artifact class with their defaults, in order."""
    return {f.name: f.default for f in fields(cls) if f.metadata.get("attribute")}


def dims_of(schema: ArraySchema, rank: int) -> list[str]:
    """Return the dimension names of an array of this rank, with ``...`` expanded."""
    if schema.spread is None:
        return list(schema.dims)
    at = schema.dims.index(schema.spread)
    width = rank - len(schema.dims) + 1
    numbered = " ".join(f"dim{at + i}" for i in range(width))
    named = SPREADS.get(schema.spread, {}).get(width, numbered)
    return [*schema.dims[:at], *named.split(), *schema.dims[at + 1 :]]


def check(where: str, named: Mapping[str, tuple[ArraySchema, np.ndarray]]) -> None:
    """Compare arrays with their schemas: type, rank, equal sizes of equal names, finiteness.

    Args:
        where: name of the artifact in error messages, a file name for example.
        named: for each HDF5 key, its schema and its array.

    Raises:
        ArtifactError: names the artifact, the key, and the expected content.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for key, (schema, value) in named.items():
        place, kind = f"{where}: {key}", value.dtype.kind
        if kind not in KINDS[schema.kind]:
            raise ArtifactError(f"{place} has type {value.dtype}, expected {schema.kind} values")
        if kind == "O" and not all(isinstance(item, str) for item in value.flat):
            raise ArtifactError(f"{place} contains objects that are not text")
        declared = len(schema.dims) - (schema.spread is not None)
        if value.ndim < declared or (value.ndim > declared and schema.spread is None):
            wanted = " ".join(schema.dims)
            raise ArtifactError(f"{place} has shape {value.shape}, expected ({wanted})")
        for name, size in zip(dims_of(schema, value.ndim), value.shape, strict=True):
            if schema.spread in FREE and name not in schema.dims:
                continue
            first, owner = sizes.setdefault(name, (size, key))
            if first != size:
                raise ArtifactError(f"{place} has {size} along {name!r}, but {owner} has {first}")
        if schema.finite and kind == "f" and not np.isfinite(value).all():
            bad = int(value.size - np.isfinite(value).sum())
            raise ArtifactError(f"{place} contains {bad} values that are NaN or infinite")
