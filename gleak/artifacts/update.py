"""``update.h5``, updates that the server receives, and ``granted/*.h5``, what it is told."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from gleak.artifacts.encodings import Encoded, check_encoded, load_encoded, store_encoded
from gleak.artifacts.integrity import attribute_of
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.reading import chosen_keys, load_attributes, member
from gleak.artifacts.schema import array, arrays, attribute
from gleak.artifacts.store import Artifact, create_group
from gleak.core.errors import ArtifactError, DamagedError, SpecError
from gleak.core.lazy import h5py


@dataclass(frozen=True, kw_only=True)
class Update(Artifact):
    """Updates of V independent clients over R observed rounds.

    Args:
        update: encoded values of each parameter; decoded Shape (V, R, *shape).
        protocol: how the clients trained; stored as attributes of the root.
        broadcast: for each parameter, and each buffer of real numbers, its value broadcast before
            each round, Shape (R, *shape); absent if one round was observed, before which it was the
            model of the cell.
    """

    format: ClassVar[str] = "gleak/update"

    protocol: Protocol = field(default_factory=Protocol)
    update: dict[str, Encoded]
    broadcast: dict[str, np.ndarray] | None = arrays("round weight...", "weight", optional=True)

    @property
    def victims(self) -> int:
        """Number of clients."""
        return next(iter(self.update.values())).leading[0]

    @property
    def rounds(self) -> int:
        """Number of observed rounds."""
        return next(iter(self.update.values())).leading[1]

    def validate(self, where: str | None = None) -> None:
        """Check every parameter, and that all have the same victims and rounds."""
        where = where or self.format
        super().validate(where)
        if not self.update:
            raise ArtifactError(f"{where}: /update contains no parameter")
        for name, encoded in self.update.items():
            check_encoded(where, f"/update/{name}", encoded)
        first = next(iter(self.update))
        expected = self.update[first].leading
        for name, encoded in self.update.items():
            if encoded.leading != expected:
                raise ArtifactError(
                    f"{where}: /update/{name} has (victim, round) = {encoded.leading}, "
                    f"but /update/{first} has {expected}"
                )

    def _attributes(self) -> dict[str, Any]:
        return {**super()._attributes(), **self.protocol.attributes()}

    def _store(self, file: h5py.File) -> None:
        super()._store(file)
        group = create_group(file, "update")
        for name, encoded in self.update.items():
            store_encoded(group, name, encoded)

    @classmethod
    def _load(cls, file: h5py.File, only: Collection[str] | None, victims: slice) -> dict[str, Any]:
        group = member(file, "update", h5py.Group)
        update = {name: load_encoded(group, name, victims) for name in chosen_keys(group, only)}
        attributes = load_attributes(file, Protocol().attributes())
        try:
            protocol = Protocol.of_attributes(attributes)
        except SpecError as error:
            raise DamagedError(file.filename, str(error)) from None
        return {"update": update, "protocol": protocol, **super()._load(file, None, victims)}


GRANTS = (
    "labels",
    "embeddings",
    "mean_input",
    "class_sample",
    "auxiliary_inputs",
    "auxiliary_labels",
    "batch_norm_statistics",
)


@dataclass(frozen=True, kw_only=True)
class Granted(Artifact):
    """One piece of granted knowledge (`gleak.simulation.grants`), per victim or shared by all.

    Args:
        grant: one of `GRANTS`.
        shared: True if the values are the same for all victims, and stored once.
        values: Shape (V, ...), samples in [0, 1], labels, activations or their statistics; (1, ...)
            if shared.
    """

    format: ClassVar[str] = "gleak/granted"

    grant: str = attribute("")
    shared: bool = attribute(False)
    values: np.ndarray = array(
        "victim ...", "class index, intensity, activation, or its mean and variance", "number"
    )

    @classmethod
    def _load(cls, file: h5py.File, only: Collection[str] | None, victims: slice) -> dict[str, Any]:
        """Load the values; shared ones are loaded whole for any range of victims."""
        return super()._load(file, only, slice(None) if attribute_of(file, "shared") else victims)
