"""Workflow stage that concatenates the reconstructions of a cell's shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.artifacts.schema import array_fields
from gleak.core.errors import ArtifactError
from gleak.runtime.provenance import load

ADDED = ("seconds", "cpu_seconds")


def gather_shards(shards: Sequence[Path], output: Path) -> None:
    """Write one reconstruction with the victims of all shards, in order.

    Fields that are recorded for the first victims only (snapshots) are those of the first shard.

    Raises:
        ArtifactError: the shards differ in the number of samples found.
    """
    parts = [Reconstruction.read(path) for path in shards]
    by_victim = [
        name
        for name, schema in array_fields(Reconstruction).items()
        if schema.dims[0] == "victim" and getattr(parts[0], name) is not None
    ]
    found = {part.inputs.shape[1] for part in parts}
    if len(found) > 1:
        raise ArtifactError(
            f"{output}: the shards contain different numbers of samples, {sorted(found)}, as is "
            "possible for an attack with counted=spectrum; run it with shards=1"
        )
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in by_victim
    }
    replace(parts[0], **joined).write(output)


def total_cost(shards: Sequence[Path]) -> dict[str, Any]:
    """Return the cost of all shards: the sum of times, the largest peak of memory, the device.

    Raises:
        DamagedError: the record of a shard is missing or not JSON.
    """
    facts = [load(path.parent) for path in shards]
    added = {key: sum(fact[key] for fact in facts) for key in ADDED}
    peak = max(fact["peak_memory_mb"] for fact in facts)
    return {**added, "peak_memory_mb": peak, "device": facts[0]["device"]}
