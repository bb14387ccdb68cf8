"""``private.h5``: the true samples of each update, read by scoring and never by an attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gleak.artifacts.schema import array, attribute
from gleak.artifacts.store import Artifact

UNKNOWN = -1
"""Position or label that is not known."""


@dataclass(frozen=True, kw_only=True)
class Private(Artifact):
    """True samples and labels of each victim, and properties of its update.

    Args:
        inputs: Shape (V, N, C, H, W) or (V, N, F), values in [0, 1].
        labels: Shape (V, N), class indices.
        indices: Shape (V, N), positions in the split they were drawn from; -1 if captured.
        modality: "image" or "tabular".
        feature_groups: one group number per column of a table, as in a dataset.
        embeddings: Shape (V, N, E), inputs of the broadcast model's first dense layer; absent if
            these are the samples themselves, there is no such layer, or clients of a sum have
            different models.
        rounds: Shape (V, R, B), positions of the samples used in each observed round; absent if
            every round uses all.
        drift: Shape (V), relative distance of the local steps from one step on the whole batch (see
            `gleak.simulation.victims`); absent for clients of one step, or with different models.
        epoch_change: Shape (V), relative distance of a sample's updates in its first and its last
            epoch (see `gleak.simulation.victims`); absent for clients of one round.
        noise_multipliers: Shape (V, S), standard deviation of the noise of each local step of all
            rounds, relative to the step's sensitivity to one sample; absent without such noise.
        perturbation: Shape (V, R), relative change of each update by the defence (see
            `gleak.simulation.victims`); absent for captured clients.
        clients: Shape (V, N), number of the client of each sample among those of its sum; absent if
            an update is that of one client.
        sent_bytes: Shape (V, R), size of each update as one client sends it (see
            `gleak.artifacts.encodings`); absent for captured clients.
    """

    format: ClassVar[str] = "gleak/private"

    modality: str = attribute("image")
    inputs: np.ndarray = array("victim sample feature...", "intensity in [0, 1]")
    labels: np.ndarray = array("victim sample", "class index", "int")
    indices: np.ndarray = array("victim sample", "position in the split", "int")
    feature_groups: np.ndarray | None = array("feature", "group number", "int", optional=True)
    embeddings: np.ndarray | None = array("victim sample embedding", "activation", optional=True)
    rounds: np.ndarray | None = array("victim round member", "sample", "int", optional=True)
    drift: np.ndarray | None = array("victim", "relative error", optional=True)
    epoch_change: np.ndarray | None = array("victim", "relative error", optional=True)
    noise_multipliers: np.ndarray | None = array("victim step", "sensitivity", optional=True)
    perturbation: np.ndarray | None = array("victim round", "relative error", optional=True)
    clients: np.ndarray | None = array(
        "victim sample", "number of the client", "int", optional=True
    )
    sent_bytes: np.ndarray | None = array("victim round", "byte", optional=True)
