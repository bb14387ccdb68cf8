"""``granted/*.h5``: what a setting gives the attacker beside the update, one file each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gleak.artifacts.schema import array, attribute
from gleak.artifacts.store import Artifact

GRANTS = ("labels", "mean_input")


@dataclass(frozen=True, kw_only=True)
class Granted(Artifact):
    """One piece of granted knowledge per victim.

    Args:
        grant: "labels", those of the victim's samples in ascending order, or "mean_input", the
            mean training sample of the dataset, the same for all; of a dataset without a
            training split it is that of the test split, the victims' own samples among them.
        values: Shape (V, ...).
    """

    format: ClassVar[str] = "gleak/granted"

    grant: str = attribute("")
    values: np.ndarray = array("victim ...", "class index or intensity", "number")
