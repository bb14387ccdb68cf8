"""``model.h5``, ``parameters.h5`` and ``secret.h5``: broadcast parameters and a server's secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gleak.artifacts.schema import array, arrays, attribute
from gleak.artifacts.store import Artifact


@dataclass(frozen=True, kw_only=True)
class Model(Artifact):
    """Parameters and buffers of a model, and its training history.

    Args:
        model: canonical spec of the architecture.
        modality: "image" or "tabular".
        input_shape: shape of one sample.
        classes: number of outputs.
        parameters: trainable parameters, by name.
        buffers: other state (normalisation), by name.
        train_loss: mean loss of each epoch or round; empty if untrained.
        test_accuracy: after each epoch or round; one value if untrained.
    """

    format: ClassVar[str] = "gleak/model"

    model: str = attribute("")
    modality: str = attribute("image")
    classes: int = attribute(0)
    input_shape: np.ndarray = array("axis", "size", "int")
    parameters: dict[str, np.ndarray] = arrays("weight...", "weight")
    buffers: dict[str, np.ndarray] = arrays("...", "buffer", "number")
    train_loss: np.ndarray = array("epoch", "nat")
    test_accuracy: np.ndarray = array("evaluation", "share of test samples")


@dataclass(frozen=True, kw_only=True)
class Secret(Artifact):
    """Record that a server keeps of its crafted parameters; clients and their audits never see it.

    Args:
        values: arrays by name, defined by the crafting.
    """

    format: ClassVar[str] = "gleak/secret"

    values: dict[str, np.ndarray] = arrays("...", "index, gain or response", "number")
