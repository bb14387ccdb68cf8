"""``reconstruction.h5``: the samples that an attack reconstructed from each victim's update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gleak.artifacts.schema import array, array_fields, attribute
from gleak.artifacts.store import Artifact

TRACES = ("trace_iteration", "trace_objective", "snapshot_iteration", "snapshots")


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Artifact):
    """Reconstructed samples and statistics of the search.

    Attacks that do not iterate leave the optional fields out.

    Args:
        inputs: Shape (V, N, C, H, W) or (V, N, F), values in [0, 1].
        labels: Shape (V, N), class indices; -1 where unknown.
        converged: Shape (V), True if the attack's own criterion was met for all samples.
        iterations: Shape (V), total number of iterations, restarts included.
        evaluations: Shape (V), number of evaluations of the objective with its gradient.
        restarts: Shape (V), number of restarts of a diverged search.
        objective: Shape (V), final value of the objective.
        trace_iteration: Shape (K), iterations at which the objective was recorded.
        trace_objective: Shape (V, K); after a victim stopped, its last value.
        snapshot_iteration: Shape (S), iterations at which snapshots were taken.
        snapshots: Shape (W, S, N, ...), the first W victims at those iterations, start first.
        mirrored: Shape of ``inputs``, the samples with the opposite sign, for attacks that recover
            samples up to their sign; used by metrics with a sign oracle.
        averaged_count: Shape (V, N), number of true samples averaged in each reconstructed one; 0
            where the attack found none. Such a sample is mid-grey and is not compared with the
            truth.
        paired: True if each label is known to belong to the sample at the same position.
        rounds: Shape (V, N, E), estimated round of each sample in each epoch.
        embeddings: Shape (V, M, E), recovered inputs of the first dense layer.
    """

    format: ClassVar[str] = "gleak/reconstruction"
    version: ClassVar[int] = 2

    modality: str = attribute("image")
    paired: bool = attribute(False)
    inputs: np.ndarray = array("victim sample feature...", "intensity in [0, 1]")
    labels: np.ndarray = array("victim sample", "class index", "int")
    converged: np.ndarray = array("victim", "yes or no", "bool")
    iterations: np.ndarray | None = array("victim", "iterations", "int", optional=True)
    evaluations: np.ndarray | None = array("victim", "evaluations", "int", optional=True)
    restarts: np.ndarray | None = array("victim", "restarts", "int", optional=True)
    objective: np.ndarray | None = array("victim", "1", optional=True)
    trace_iteration: np.ndarray | None = array("record", "iterations", "int", optional=True)
    trace_objective: np.ndarray | None = array("victim record", "1", optional=True)
    snapshot_iteration: np.ndarray | None = array("snapshot", "iterations", "int", optional=True)
    snapshots: np.ndarray | None = array(
        "shown_victim snapshot sample feature...", "intensity in [0, 1]", optional=True
    )
    mirrored: np.ndarray | None = array(
        "victim sample feature...", "intensity in [0, 1]", optional=True
    )
    averaged_count: np.ndarray | None = array("victim sample", "samples", "int", optional=True)
    rounds: np.ndarray | None = array("victim sample epoch", "round", "int", optional=True)
    embeddings: np.ndarray | None = array("victim source embedding", "activation", optional=True)


def join_victims(parts: Sequence[Reconstruction]) -> Reconstruction:
    """Join the results of victims, in order.

    Fields that are recorded for the first victims only (snapshots) are those of the first part.
    What only some of the parts recorded is left out, as `best` may run other attacks in each.
    """
    fields: dict[str, Any] = {}
    for name, schema in array_fields(Reconstruction).items():
        if schema.dims[0] == "victim":
            values = [getattr(part, name) for part in parts]
            alike = len({None if value is None else value.shape[1:] for value in values}) == 1
            joined = alike and values[0] is not None
            fields[name] = np.concatenate(values) if joined else None
    traces = [part.trace_iteration for part in parts]
    if len({None if trace is None else tuple(trace) for trace in traces}) > 1:
        fields |= dict.fromkeys(TRACES)
    return replace(parts[0], **fields, paired=all(part.paired for part in parts))
