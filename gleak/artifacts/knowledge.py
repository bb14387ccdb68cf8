"""``knowledge.h5``: a network trained on public data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gleak.artifacts.schema import array, arrays, attribute
from gleak.artifacts.store import Artifact


@dataclass(frozen=True, kw_only=True)
class Knowledge(Artifact):
    """A pretrained network, its training losses and fingerprints of its training samples.

    Args:
        knowledge: its canonical spec.
        dataset: canonical spec of the public dataset.
        input_shape: shape of one sample.
        classes: number of classes of the public dataset.
        class_names: one name per class.
        parameters: parameters of the network, by name.
        buffers: buffers of the network, by name.
        loss_step: steps at which losses were recorded.
        losses: by name, the mean since the previous record.
        fingerprints: hash of each public sample used in training, see
            `gleak.knowledge.loading`.
    """

    format: ClassVar[str] = "gleak/knowledge"
    version: ClassVar[int] = 2

    knowledge: str = attribute("")
    dataset: str = attribute("")
    classes: int = attribute(0)
    class_names: np.ndarray = array("class", "name", "text")
    input_shape: np.ndarray = array("axis", "size", "int")
    parameters: dict[str, np.ndarray] = arrays("weight...", "weight")
    buffers: dict[str, np.ndarray] = arrays("...", "buffer", "number")
    loss_step: np.ndarray = array("point", "step", "int")
    losses: dict[str, np.ndarray] = arrays("point", "loss")
    fingerprints: np.ndarray = array("public_sample", "hash", "int")
