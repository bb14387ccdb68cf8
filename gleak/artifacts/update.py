"""``update.h5``: updates that the server receives from each victim."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gleak.artifacts.encodings import (
    Encoded,
    check_encoded,
    load_encoded,
    store_encoded,
)
from gleak.artifacts.reading import chosen_keys, member
from gleak.artifacts.schema import arrays, attribute
from gleak.artifacts.store import Artifact, create_group
from gleak.core.errors import ArtifactError
from gleak.core.lazy import h5py


@dataclass(frozen=True, kw_only=True)
class Update(Artifact):
    """Updates of V independent clients over R observed rounds.

    Args:
        update: encoded values of each parameter; decoded Shape (V, R, *shape).
        content: "gradient" (the mean loss's gradient) or "difference" (weights after minus before).
        batch_size: number of samples that one client uses in one round.
        mini_batch: number of samples of one local step.
        local_steps: number of optimisation steps in one round.
        local_lr: learning rate of those steps.
        reduction: reduction of the loss over the samples of a batch.
        loss: "cross_entropy" or "nll_raw".
        batch_norm: "training" if clients normalise by the statistics of their batches; absent if
            they do so by the running statistics.
        epochs: number of passes of the rounds over all samples of a client.
        broadcast: for each parameter, its value broadcast before each round, Shape (R, *shape);
            absent if one round was observed, before which it was the model of the cell.
    """

    format: ClassVar[str] = "gleak/update"

    content: str = attribute("gradient")
    batch_size: int = attribute(1)
    mini_batch: int = attribute(1)
    local_steps: int = attribute(1)
    local_lr: float = attribute(1.0)
    reduction: str = attribute("mean")
    loss: str = attribute("cross_entropy")
    batch_norm: str | None = attribute()
    epochs: int = attribute(1)
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
        first, *others = self.update
        expected = self.update[first].leading
        for name in others:
            if (found := self.update[name].leading) != expected:
                raise ArtifactError(
                    f"{where}: /update/{name} has (victim, round) = {found}, "
                    f"but /update/{first} has {expected}"
                )

    def _store(self, file: h5py.File) -> None:
        super()._store(file)
        group = create_group(file, "update")
        for name, encoded in self.update.items():
            store_encoded(group, name, encoded)

    @classmethod
    def _load(cls, file: h5py.File, only: Collection[str] | None, victims: slice) -> dict[str, Any]:
        group = member(file, "update", h5py.Group)
        update = {name: load_encoded(group, name, victims) for name in chosen_keys(group, only)}
        return {"update": update, **super()._load(file, None, victims)}
