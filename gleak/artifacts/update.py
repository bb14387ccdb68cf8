"""``update.h5``: what the server sees of each victim."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import h5py
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


@dataclass(frozen=True, kw_only=True)
class Update(Artifact):
    """Updates of V independent clients over R observed rounds.

    Args:
        update: for each parameter, its values as sent; decoded Shape (V, R, *shape).
        content: "gradient" (the mean loss's gradient) or "difference" (weights after minus before).
        batch_size: samples behind one round of one client.
        mini_batch: samples of one local step.
        local_steps: optimisation steps behind one round.
        local_lr: learning rate of those steps.
        reduction: how the loss joins the samples of a batch.
        loss: "cross_entropy" or "nll_raw".
        epochs: how often the rounds go through all samples of a client.
        broadcast: for each parameter, what was broadcast before each round, Shape (R, *shape);
            left out where one round was observed, before which they were those of the cell.
    """

    format: ClassVar[str] = "gleak/update"

    content: str = attribute("gradient")
    batch_size: int = attribute(1)
    mini_batch: int = attribute(1)
    local_steps: int = attribute(1)
    local_lr: float = attribute(1.0)
    reduction: str = attribute("mean")
    loss: str = attribute("cross_entropy")
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
        """Check every parameter; all must hold the same victims and rounds."""
        where = where or self.format
        super().validate(where)
        if not self.update:
            raise ArtifactError(f"{where}: /update holds no parameter")
        for name, encoded in self.update.items():
            check_encoded(where, f"/update/{name}", encoded)
        first, *others = self.update
        expected = self.update[first].leading
        for name in others:
            if (found := self.update[name].leading) != expected:
                raise ArtifactError(
                    f"{where}: /update/{name} holds (victim, round) = {found}, "
                    f"but /update/{first} holds {expected}"
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
