"""``secret.h5``: what a server that crafts parameters keeps to itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gleak.artifacts.schema import arrays
from gleak.artifacts.store import Artifact


@dataclass(frozen=True, kw_only=True)
class Secret(Artifact):
    """Where a server put what it means to read; clients and their audits never see it.

    Args:
        values: by a name of the crafting's own; what each is stands with that crafting.
    """

    format: ClassVar[str] = "gleak/secret"

    values: dict[str, np.ndarray] = arrays("...", "index, gain or response", "number")
