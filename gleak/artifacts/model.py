"""``model.h5``, ``parameters.h5``, ``secret.h5`` and ``knowledge.h5``: networks."""

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
        client_parameters: parameters of which a malicious server sends each client of a sum a value
            of its own, by name; Shape (clients, *shape), of which the first are also in
            ``parameters``. Absent if all clients get the same.
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
    client_parameters: dict[str, np.ndarray] | None = arrays(
        "client weight...", "weight", optional=True
    )


@dataclass(frozen=True, kw_only=True)
class Secret(Artifact):
    """Record that a server keeps of its crafted parameters; clients and their audits never see it.

    Args:
        values: arrays by name, defined by the crafting.
    """

    format: ClassVar[str] = "gleak/secret"

    values: dict[str, np.ndarray] = arrays("...", "index, gain or response", "number")


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
        fingerprints: hash of each public sample used in training, see `gleak.knowledge.loading`.
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
