"""``granted/*.h5``: what a setting gives the attacker beside the update, one file each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import h5py
import numpy as np

from gleak.artifacts.integrity import attribute_of
from gleak.artifacts.schema import array, attribute
from gleak.artifacts.store import Artifact

GRANTS = (
    "labels",
    "embeddings",
    "mean_input",
    "class_sample",
    "auxiliary_inputs",
    "auxiliary_labels",
)


@dataclass(frozen=True, kw_only=True)
class Granted(Artifact):
    """One piece of granted knowledge, for each victim or the same for all.

    What each grant is stands in `gleak.simulation.grants`.

    Args:
        grant: one of `GRANTS`.
        shared: the same for all victims, and stored once.
        values: Shape (V, ...), of samples in [0, 1] or of activations; (1, ...) if shared.
    """

    format: ClassVar[str] = "gleak/granted"

    grant: str = attribute("")
    shared: bool = attribute(False)
    values: np.ndarray = array("victim ...", "class index, intensity or activation", "number")

    @classmethod
    def _load(cls, file: h5py.File, only: Collection[str] | None, victims: slice) -> dict[str, Any]:
        """What is shared is loaded whole, whichever victims are asked for."""
        return super()._load(
            file, only, victims if not attribute_of(file, "shared") else slice(None)
        )
