"""What an update says of the one class that crafted parameters let through."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gleak.matching.problem import mean_gradients
from gleak.models.layer_search import find_classifier

if TYPE_CHECKING:
    from gleak.observation import Observation


def samples_of_class(observation: Observation, target: int) -> Tensor:
    """How many samples of the class each victim holds, as far as the server can tell; Shape (V).

    The gradient of the target's bias is the mean of p - [label = target], where p is next to
    nothing: minus the class's share of the batch. A defence may have scaled it, so that any
    negative value stands for one sample at least.
    """
    _, bias = _names(observation)
    share = -mean_gradients(observation)[bias][:, target]
    counts = (share * observation.batch_size).round().clamp(1, observation.batch_size)
    return torch.where(share > 0, counts, 0).long()


def of_class_alone(observation: Observation, target: int) -> Observation:
    """What would be observed of a client with one sample and a network with one output.

    That output is the target's logit, and the loss is its negative: all that the target's samples
    have a part in, times their share of the batch, which a distance must not mind. The other
    rows of the last layer, which the samples of other classes wrote, are left out.
    """
    names = _names(observation)

    def alone(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: value[:, :, target, None] if name in names else value
            for name, value in values.items()
        }

    return replace(
        observation,
        update=alone(observation.update),
        sent=alone(observation.sent),
        model=_with_one_output(observation.model, names, target),
        classes=1,
        batch_size=1,
        mini_batch=1,
        loss="nll_raw",
    )


def _names(observation: Observation) -> tuple[str, str]:
    """Of the last layer's weight and bias."""
    network, shape = observation.model, observation.input_shape
    return find_classifier(network, shape, observation.classes).dense_parameters()


def _with_one_output(model: nn.Module, names: tuple[str, str], target: int) -> nn.Module:
    """A copy of a network whose last layer has one row of these parameters."""
    network = deepcopy(model)
    rows = (network.get_parameter(name)[target, None].clone() for name in names)
    last: Any = network.get_submodule(names[0].rpartition(".")[0])
    last.weight, last.bias = (nn.Parameter(row, requires_grad=False) for row in rows)
    last.out_features = 1
    return network
