"""``granted/*.h5``: auxiliary knowledge that a setting grants the attacker, one file each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gleak.artifacts.integrity import attribute_of
from gleak.artifacts.schema import array, attribute
from gleak.artifacts.store import Artifact
from gleak.core.lazy import h5py

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
    """One piece of granted knowledge, per victim or shared by all.

    The grants are described in `gleak.simulation.grants`.

    Args:
        grant: one of `GRANTS`.
        shared: True if the values are the same for all victims, and stored once.
        values: Shape (V, ...), samples in [0, 1], labels, activations or their
            statistics; (1, ...) if shared.
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
        return super()._load(
            file, only, victims if not attribute_of(file, "shared") else slice(None)
        )
