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
TRACES = ("trace_iteration", "trace_objective", "snapshot_iteration", "snapshots")
"""Fields of the course of a search."""


def gather_shards(shards: Sequence[Path], output: Path) -> None:
    """Write one reconstruction with the victims of all shards, in order.

    Raises:
        ArtifactError: the shards differ in the number of samples found.
    """
    parts = [Reconstruction.read(path) for path in shards]
    found = {part.inputs.shape[1] for part in parts}
    if len(found) > 1:
        raise ArtifactError(
            f"{output}: the shards contain different numbers of samples, {sorted(found)}, as is "
            "possible for an attack with counted=spectrum; run it with shards=1"
        )
    joined(parts).write(output)


def joined(parts: Sequence[Reconstruction]) -> Reconstruction:
    """Join the results of victims, in order.

    Fields that are recorded for the first victims only (snapshots) are those of the first part.
    What only some of the parts recorded is left out, as `best` may run other attacks in each.
    """
    dims = {name: schema.dims for name, schema in array_fields(Reconstruction).items()}
    fields: dict[str, Any] = {
        name: _of_all(parts, name) for name in dims if dims[name][0] == "victim"
    }
    recorded = {
        None if part.trace_iteration is None else tuple(part.trace_iteration) for part in parts
    }
    if len(recorded) > 1:
        fields |= dict.fromkeys(TRACES)
    return replace(parts[0], **fields, paired=all(part.paired for part in parts))


def _of_all(parts: Sequence[Reconstruction], name: str) -> np.ndarray | None:
    """Return the values of all victims; None if parts lack them or differ in their shape."""
    values = [getattr(part, name) for part in parts]
    if len({None if value is None else value.shape[1:] for value in values}) > 1:
        return None
    return None if values[0] is None else np.concatenate(values)


def total_cost(shards: Sequence[Path]) -> dict[str, Any]:
    """Return the cost of all shards: the sum of times, the largest peak of memory, the device.

    Raises:
        DamagedError: the record of a shard is missing or not JSON.
    """
    facts = [load(path.parent) for path in shards]
    added = {key: sum(fact[key] for fact in facts) for key in ADDED}
    peak = max(fact["peak_memory_mb"] for fact in facts)
    return {**added, "peak_memory_mb": peak, "device": facts[0]["device"]}
