"""``private.h5``: the truth. Scoring reads it; no attack ever does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gleak.artifacts.schema import array, attribute
from gleak.artifacts.store import Artifact


@dataclass(frozen=True, kw_only=True)
class Private(Artifact):
    """The samples behind each victim's update.

    Args:
        inputs: Shape (V, N, C, H, W) or (V, N, F), values in [0, 1].
        labels: Shape (V, N), class indices.
        indices: Shape (V, N), positions in the split they were drawn from; -1 of captured ones.
        modality: "image" or "tabular".
        feature_groups: of a table, one group number per column, as in
            `gleak.artifacts.dataset.Dataset`.
        embeddings: Shape (V, N, E), what the broadcast model's first dense layer is given of each
            sample; left out where that is the sample itself, or there is no such layer.
        rounds: Shape (V, R, B), which of the samples stand behind each observed round; left out
            where one round has them all.
        drift: Shape (V), how far each victim's local steps are from one on its whole batch (see
            `gleak.simulation.drift`); left out for clients of one step.
        noise_multipliers: Shape (V, S), for each local step of all rounds the deviation of its
            noise over how far one sample can move it; left out where steps have none.
        perturbation: Shape (V, R), how much the defence changed what each victim sent in each round
            (see `gleak.simulation.update_error`); left out for captured clients.
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
    noise_multipliers: np.ndarray | None = array("victim step", "sensitivity", optional=True)
    perturbation: np.ndarray | None = array("victim round", "relative error", optional=True)
