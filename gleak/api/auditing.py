"""Audits of a model that a client was sent."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from torch import Tensor, nn

from gleak.api.tensors import (
    ArrayLike,
    Labels,
    Shape,
    ShapeLike,
    checked_inputs,
    checked_labels,
    checked_seed,
    checked_shape,
)
from gleak.api.user_network import examine, modality_of, own_modes, prepared_copy
from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.errors import SpecError
from gleak.metrics.audits.alarms import AuditReport, run_audits
from gleak.metrics.audits.base import Broadcast
from gleak.models.broadcast import with_state
from gleak.models.parameters import independent_copy

IMAGE = (3, 32, 32)


@own_modes()
def audit(
    model: nn.Module,
    inputs: ArrayLike | None = None,
    labels: Labels | None = None,
    *,
    shape: ShapeLike | None = None,
    seed: SupportsIndex = 0,
) -> AuditReport:
    """Test the parameters of a model for signs of crafting, as ``gleak audit`` does.

    Args:
        model: network as it was received; it is not changed.
        inputs: samples of the client with values in [0, 1], Shape (M, *shape): audits then measure
            which weights they reach. None: some audits are not available.
        labels: labels of the samples, Shape (M).
        shape: shape of one sample; by default that of the inputs, else (3, 32, 32).
        seed: seed of the draw of samples, not negative.

    Returns:
        Verdict, worst layer, statistic and limit of each audit; ``alarms`` has the names of the
        audits that raise an alarm.

    Raises:
        SpecError: an invalid shape or seed, or only one of inputs and labels.
        ArtifactError: invalid samples or labels.
        IncompatibleError: the model does not accept such samples.

    Example:
        >>> import gleak, torch
        >>> from torch import Tensor, nn
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))
        >>> gleak.audit(model, shape=(3, 8, 8)).alarms
        []
        >>> crafted = gleak.craft("fishing", model, shape=(3, 8, 8)).model
        >>> gleak.audit(crafted, shape=(3, 8, 8)).alarms
        ['audit_bias']
    """
    if (inputs is None) != (labels is None):
        raise SpecError("give samples as inputs and labels, or neither")
    given, seed = None if shape is None else checked_shape(shape), checked_seed(seed)
    samples = None if inputs is None else checked_inputs(inputs, given)
    shape = given or (IMAGE if samples is None else tuple(samples.shape[1:]))
    network = prepared_copy(model)
    classes = examine(network, shape)
    if samples is None:
        return audit_examined(network, shape, classes, seed=seed)
    known = checked_labels(labels, len(samples), classes)
    return audit_examined(network, shape, classes, (samples, known), seed)


def audit_examined(
    network: nn.Module,
    shape: Shape,
    classes: int,
    samples: tuple[Tensor, Tensor] | None = None,
    seed: int = 0,
) -> AuditReport:
    """Audit a prepared network that was examined.

    Args:
        network: not changed.
        shape: shape of one sample.
        classes: number of classes.
        samples: checked inputs, Shape (M, *shape), and labels, Shape (M), of the client; None:
            unknown.
        seed: seed of the draw of samples.
    """
    single = independent_copy(network).float()
    received = with_state(_empty_model(shape, classes), single)
    data = None if samples is None else _dataset(*samples, classes)
    return run_audits(Broadcast(received, data, seed, lambda: independent_copy(single)))


def _dataset(samples: Tensor, known: Tensor, classes: int) -> Dataset:
    """Return a client's samples as the train split of a dataset."""
    inputs, labels = samples.numpy(), known.numpy()
    return Dataset(
        spec="of the client",
        modality=modality_of(inputs.shape[1:]),
        train_inputs=inputs,
        train_labels=labels,
        test_inputs=inputs[:0],
        test_labels=labels[:0],
        class_names=np.arange(classes).astype(str),
    )


def _empty_model(shape: Shape, classes: int) -> Model:
    """Return the artifact of a model without its parameters."""
    nothing: Any = {"parameters": {}, "buffers": {}}
    return Model(
        modality=modality_of(shape),
        classes=classes,
        input_shape=np.array(shape),
        train_loss=np.empty(0),
        test_accuracy=np.empty(0),
        **nothing,
    )
