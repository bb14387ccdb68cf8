"""The client's local training as the attacker repeats it.

`client_gradients` is what the engine matches: one step's gradient, or the mean gradient of all
local steps, each at the parameters that the steps before have led to (InvertGrad, section 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gleak.matching.distances.base import Piece
from gleak.matching.gradients import Gradients, VmappedGradients, choose_gradients
from gleak.matching.pieces import FormedPiece

if TYPE_CHECKING:
    from gleak.attacks.base import Observation
    from gleak.matching.parts import ClientModel


def client_gradients(observation: Observation, client_model: ClientModel) -> Gradients:
    """The fastest way to the gradients that the attacker's model of the client gives."""
    if repeated_steps(observation, client_model) > 1:
        return UnrolledGradients(observation)
    return choose_gradients(observation.model, observation.loss, observation.input_shape)


def repeated_steps(observation: Observation, client_model: ClientModel) -> int:
    """How many of the client's steps one evaluation goes through."""
    return observation.local_steps if client_model == "unrolled" else 1


class UnrolledGradients:
    """Mean gradient of T local steps of gradient descent, differentiated through all of them.

    Steps take the samples in their order, `Observation.mini_batch` at a time and from the first
    again after the last; in which order the client took them an attacker does not know.
    """

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self._one_step = VmappedGradients(observation.model, observation.loss)

    def __call__(self, inputs: Tensor, targets: Tensor, observed: dict[str, Tensor]) -> list[Piece]:
        """One formed piece per parameter; see `gleak.matching.gradients.Gradients`."""
        mean = self._mean_gradients(inputs, targets)
        return [FormedPiece(name, mean[name], observed[name]) for name in mean]

    def _mean_gradients(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """For each parameter, Shape (V, *shape).

        The steps' gradients are added up: a difference of weights would be rounded to the weights'
        precision, which at a small learning rate is coarse.
        """
        rate, steps = self.observation.local_lr, self.observation.local_steps
        parameters = self._one_step.broadcast(len(inputs))
        total = {name: torch.zeros_like(value) for name, value in parameters.items()}
        for step in range(steps):
            some = self._samples_of(step)
            gradients = self._one_step.gradients_at(parameters, inputs[:, some], targets[:, some])
            total = {name: value + gradients[name] for name, value in total.items()}
            parameters = {
                name: value - rate * gradients[name] for name, value in parameters.items()
            }
        return {name: value / steps for name, value in total.items()}

    def _samples_of(self, step: int) -> slice:
        size = self.observation.mini_batch
        first = step * size % self.observation.batch_size
        return slice(first, first + size)
