"""Encodings of the parameters of an update, as sent by clients and stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Self

import numpy as np

from gleak.artifacts.integrity import attribute_of, set_attribute
from gleak.artifacts.reading import load_array, member
from gleak.artifacts.schema import ArraySchema, check
from gleak.artifacts.store import create_group, store_array
from gleak.core.errors import ArtifactError, DamagedError
from gleak.core.lazy import h5py


class Encoding(ABC):
    """Base of the encodings.

    Arrays that differ between victims begin with axes (V, R); an array ``shape`` is that of the
    parameter.
    """

    code: ClassVar[str]
    schemas: ClassVar[dict[str, ArraySchema]]

    @classmethod
    def stack(cls, parts: Sequence[Self], axis: int = 0) -> Self:
        """Concatenate updates along the axis of victims, 0, or of rounds, 1.

        Arrays that do not depend on the victim are equal in all of them.
        """
        joined: dict[str, np.ndarray] = {
            name: np.concatenate([getattr(part, name) for part in parts], axis)
            if schema.dims[0] == "victim"
            else getattr(parts[0], name)
            for name, schema in cls.schemas.items()
        }
        return cls(**joined)

    @abstractmethod
    def decode(self) -> np.ndarray:
        """Compute the values that the server obtains; Shape (V, R, *shape)."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """Size of what all victims send in all rounds, with codes of equal length."""

    def sent(self) -> np.ndarray | None:
        """Return the mask of transmitted values, Shape (V, R, *shape); None if complete."""
        return None

    def fault(self) -> str | None:
        """Describe an inconsistency between arrays that match their schemas; None if consistent."""
        return None

    @property
    def _first(self) -> np.ndarray:
        return np.asarray(getattr(self, next(iter(self.schemas))))

    @property
    def leading(self) -> tuple[int, int]:
        """Number of victims and of rounds."""
        victims, rounds, *_ = self._first.shape
        return victims, rounds

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Shape of the parameter, without decoding."""
        return tuple(map(int, getattr(self, "shape", self._first.shape[2:])))


@dataclass(frozen=True)
class Dense(Encoding):
    """All values of a parameter.

    Args:
        values: Shape (V, R, *shape), the leading two axes victim and round.
    """

    code: ClassVar[str] = "dense"
    schemas: ClassVar[dict[str, ArraySchema]] = {
        "values": ArraySchema(("victim", "round", "weight..."), "weight", "float")
    }
    values: np.ndarray

    def decode(self) -> np.ndarray:
        return self.values

    @property
    def bits(self) -> int:
        return 8 * self.values.nbytes


@dataclass(frozen=True)
class Sparse(Encoding):
    """Transmitted entries of a parameter; all others are zero.

    Args:
        indices: Shape (V, R, K), positions in the flattened parameter; -1 marks an unused slot.
        values: Shape (V, R, K), 0 in an unused slot.
        shape: Shape (A), the shape of the parameter.
    """

    code: ClassVar[str] = "sparse"
    schemas: ClassVar[dict[str, ArraySchema]] = {
        "indices": ArraySchema(("victim", "round", "entry"), "flat position", "int"),
        "values": ArraySchema(("victim", "round", "entry"), "weight", "float"),
        "shape": ArraySchema(("axis",), "size", "int"),
    }
    indices: np.ndarray
    values: np.ndarray
    shape: np.ndarray

    @classmethod
    def stack(cls, parts: Sequence[Self], axis: int = 0) -> Self:
        width = max(part.indices.shape[-1] for part in parts)

        def widen(values: np.ndarray, fill: int) -> np.ndarray:
            gap = [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])]
            return np.pad(values, gap, constant_values=fill)

        indices = np.concatenate([widen(part.indices, -1) for part in parts], axis)
        values = np.concatenate([widen(part.values, 0) for part in parts], axis)
        return cls(indices, values, parts[0].shape)

    def decode(self) -> np.ndarray:
        size = prod(self.weight_shape)
        flat = np.zeros((*self.leading, size + 1), self.values.dtype)
        places = np.where(self.indices < 0, size, self.indices)
        np.put_along_axis(flat, places, self.values, axis=-1)
        return flat[..., :size].reshape(*self.leading, *self.shape)

    @property
    def bits(self) -> int:
        """Size of the values and of their positions, numbers or a mask, whichever is smaller."""
        size, counts = prod(self.weight_shape), (self.indices >= 0).sum(-1)
        positions = np.minimum(counts * code_bits(size), size)
        return int((8 * self.values.itemsize * counts + positions).sum())

    def sent(self) -> np.ndarray | None:
        return Sparse(self.indices, np.ones(self.indices.shape, dtype=bool), self.shape).decode()

    def fault(self) -> str | None:
        size = prod(self.weight_shape)
        if min(self.weight_shape, default=0) < 0:
            return f"/shape {self.weight_shape} is not a valid shape"
        if self.indices.size and not -1 <= self.indices.min() <= self.indices.max() < size:
            return f"/indices are out of range for {size} values"
        return None


@dataclass(frozen=True)
class Clipped(Sparse):
    """Transmitted entries that were cut to an interval; one at its end may have been larger.

    Args:
        indices: Shape (V, R, K), as in `Sparse`.
        values: Shape (V, R, K), between -bound and bound.
        shape: Shape (A), the shape of the parameter.
        bounds: Shape (V, R), the largest magnitude that is sent.
    """

    code: ClassVar[str] = "clipped"
    schemas: ClassVar[dict[str, ArraySchema]] = {
        **Sparse.schemas,
        "bounds": ArraySchema(("victim", "round"), "weight", "float"),
    }
    bounds: np.ndarray

    @classmethod
    def stack(cls, parts: Sequence[Self], axis: int = 0) -> Self:
        one = Sparse.stack(parts, axis)
        bounds = np.concatenate([part.bounds for part in parts], axis)
        return cls(one.indices, one.values, one.shape, bounds)


@dataclass(frozen=True)
class Factored(Encoding):
    """A parameter as the product of two matrices.

    Args:
        left: Shape (V, R, m, k); columns of zeros if the rank is smaller.
        right: Shape (V, R, k, n).
        shape: Shape (A), the shape of the parameter, which has m n values.
    """

    code: ClassVar[str] = "factored"
    schemas: ClassVar[dict[str, ArraySchema]] = {
        "left": ArraySchema(("victim", "round", "row", "rank"), "1", "float"),
        "right": ArraySchema(("victim", "round", "rank", "column"), "weight", "float"),
        "shape": ArraySchema(("axis",), "size", "int"),
    }
    left: np.ndarray
    right: np.ndarray
    shape: np.ndarray

    @classmethod
    def stack(cls, parts: Sequence[Self], axis: int = 0) -> Self:
        rank = max(part.left.shape[-1] for part in parts)

        def widen(values: np.ndarray, along: int) -> np.ndarray:
            gap = [(0, 0)] * values.ndim
            gap[along] = (0, rank - values.shape[along])
            return np.pad(values, gap)

        left = np.concatenate([widen(part.left, -1) for part in parts], axis)
        right = np.concatenate([widen(part.right, -2) for part in parts], axis)
        return cls(left, right, parts[0].shape)

    def decode(self) -> np.ndarray:
        return (self.left @ self.right).reshape(*self.leading, *self.shape)

    @property
    def bits(self) -> int:
        return 8 * (self.left.nbytes + self.right.nbytes)

    def fault(self) -> str | None:
        rows, columns = self.left.shape[2], self.right.shape[3]
        fits = prod(self.weight_shape) == rows * columns
        if fits and min(self.weight_shape, default=0) >= 0:
            return None
        return f"/shape {self.weight_shape} does not have {rows} x {columns} values"


@dataclass(frozen=True)
class Quantized(Encoding):
    """Integer codes, rounded at random, with one scale a victim and round (ROG Equation 6).

    Args:
        codes: Shape (V, R, *shape), sign(g_i) xi_i: between -s and s.
        scales: Shape (V, R), kappa ||g||_p / s: the value of code 1.
    """

    code: ClassVar[str] = "quantized"
    schemas: ClassVar[dict[str, ArraySchema]] = {
        "codes": ArraySchema(("victim", "round", "weight..."), "level", "int"),
        "scales": ArraySchema(("victim", "round"), "weight", "float"),
    }
    codes: np.ndarray
    scales: np.ndarray

    def decode(self) -> np.ndarray:
        scales = self.scales.reshape(*self.leading, *[1] * (self.codes.ndim - 2))
        return np.asarray(self.codes * scales)

    @property
    def bits(self) -> int:
        """Size of the scales, and of the codes with as many levels as the highest one needs."""
        highest = int(np.abs(self.codes, dtype=np.int64).max(initial=0))
        return self.codes.size * code_bits(2 * highest + 1) + 8 * self.scales.nbytes


@dataclass(frozen=True)
class Rounded(Quantized):
    """Codes of values rounded to the nearest level, so that their error is at most half a level.

    Args:
        codes: Shape (V, R, *shape), between -s and s, as in `Quantized`.
        scales: Shape (V, R), the value of code 1.
    """

    code: ClassVar[str] = "rounded"


@dataclass(frozen=True)
class Signs(Encoding):
    """Signs of all values, without magnitudes.

    Args:
        codes: Shape (V, R, *shape): -1, 0 or 1.
    """

    code: ClassVar[str] = "signs"
    schemas: ClassVar[dict[str, ArraySchema]] = {
        "codes": ArraySchema(("victim", "round", "weight..."), "sign", "int")
    }
    codes: np.ndarray

    def decode(self) -> np.ndarray:
        return self.codes.astype(np.float32)

    @property
    def bits(self) -> int:
        """Size of the signs; zero needs a second bit where it occurs."""
        return self.codes.size * code_bits(2 if self.codes.all() else 3)

    def fault(self) -> str | None:
        if self.codes.size and not -1 <= self.codes.min() <= self.codes.max() <= 1:
            return " contains codes other than -1, 0 and 1"
        return None


def code_bits(codes: int) -> int:
    """Return the number of bits by which so many codes are told apart."""
    return max(codes - 1, 0).bit_length()


Encoded = Dense | Sparse | Factored | Quantized | Signs
ENCODINGS: dict[str, type[Encoded]] = {
    cls.code: cls for cls in (Dense, Sparse, Clipped, Factored, Quantized, Rounded, Signs)
}


def store_encoded(group: h5py.Group, name: str, encoded: Encoded) -> None:
    """Store an encoded parameter: a single array as a dataset, several as a group."""
    if len(encoded.schemas) == 1:
        ((part, schema),) = encoded.schemas.items()
        store_array(group, name, getattr(encoded, part), schema, encoding=encoded.code)
        return
    stored = create_group(group, name)
    set_attribute(stored, "encoding", encoded.code)
    for part, schema in encoded.schemas.items():
        store_array(stored, part, getattr(encoded, part), schema)


def load_encoded(group: h5py.Group, name: str, victims: slice = slice(None)) -> Encoded:
    """Load one encoded parameter for a range of victims.

    Raises:
        ArtifactError: unknown encoding, or missing arrays.
    """
    stored = member(group, name, h5py.Group, h5py.Dataset)
    code = attribute_of(stored, "encoding")
    if code not in ENCODINGS:
        raise DamagedError(group.file.filename, f"{stored.name} has unknown encoding {code!r}")
    schemas = ENCODINGS[code].schemas
    if len(schemas) == 1:
        return ENCODINGS[code](**{next(iter(schemas)): load_array(group, name, victims)})
    stored = member(group, name, h5py.Group)
    parts = {
        part: load_array(stored, part, victims if schema.dims[0] == "victim" else slice(None))
        for part, schema in schemas.items()
    }
    return ENCODINGS[code](**parts)


def check_encoded(where: str, key: str, encoded: Encoded) -> None:
    """Check the arrays of an encoded parameter, whose HDF5 key is ``key``.

    Raises:
        ArtifactError: wrong shapes, values that are not finite, or inconsistent arrays.
    """
    keyed = {
        key if len(encoded.schemas) == 1 else f"{key}/{part}": (schema, getattr(encoded, part))
        for part, schema in encoded.schemas.items()
    }
    check(where, keyed)
    if fault := encoded.fault():
        raise ArtifactError(f"{where}: {key}{fault}")
