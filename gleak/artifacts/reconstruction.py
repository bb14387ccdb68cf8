"""``reconstruction.h5``: what an attack made of each victim's update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gleak.artifacts.schema import array, attribute
from gleak.artifacts.store import Artifact


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Artifact):
    """Reconstructed samples and the books of the search that found them.

    Attacks that do not iterate leave the optional fields out.

    Args:
        inputs: Shape (V, N, C, H, W) or (V, N, F), values in [0, 1].
        labels: Shape (V, N), class indices.
        converged: Shape (V), whether the attack's own criterion was met.
        iterations: Shape (V), all that were spent, restarts included.
        evaluations: Shape (V), values-with-gradients of the objective computed.
        restarts: Shape (V), how often a diverged search began afresh.
        objective: Shape (V), the value reached.
        trace_iteration: Shape (K), where the objective was recorded.
        trace_objective: Shape (V, K); after a victim stopped, its last value.
        snapshot_iteration: Shape (S).
        snapshots: Shape (W, S, N, ...), the first W victims at those iterations, start first.
        mirrored: Shape of ``inputs``, the samples under the other sign, where an attack finds each
            only up to its sign and chose one; for metrics that let an oracle choose.
        behind: Shape (V, N), of how many true samples each is the mean; 0 where an attack found
            none and says so. Such a sample is mid-grey and is not compared with the truth.
        paired: whether each sample is known to have the label in its place.
        rounds: Shape (V, N, E), in which round of each epoch it takes the sample to stand.
        embeddings: Shape (V, M, E), what it found of the inputs of the first dense layer.
    """

    format: ClassVar[str] = "gleak/reconstruction"

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
    behind: np.ndarray | None = array("victim sample", "samples", "int", optional=True)
    rounds: np.ndarray | None = array("victim sample epoch", "round", "int", optional=True)
    embeddings: np.ndarray | None = array("victim source embedding", "activation", optional=True)
