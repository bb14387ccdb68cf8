"""The client's local training as the attacker repeats it.

`client_gradients` is what the engine matches: one step's gradient, or the mean gradient of all
local steps, each at the parameters that the steps before have led to (InvertGrad, section 6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gleak.matching.distances.base import Piece
from gleak.matching.gradients import (
    Gradients,
    LayerwiseGradients,
    Moved,
    VmappedGradients,
    choose_gradients,
)
from gleak.matching.local_steps import STEPS
from gleak.matching.pieces import FormedPiece

if TYPE_CHECKING:
    from gleak.attacks.base import Observation
    from gleak.matching.parts import ClientModel


def client_gradients(observation: Observation, client_model: ClientModel) -> Gradients:
    """The fastest way to the gradients that the attacker's model of the client gives."""
    one_step = choose_gradients(observation.model, observation.loss, observation.input_shape)
    if repeated_steps(observation, client_model) == 1:
        return one_step
    if isinstance(one_step, LayerwiseGradients) and _mostly_dense(one_step.layers.values()):
        return LayerwiseUnrolled(observation, one_step)
    return VmappedUnrolled(observation)


def repeated_steps(observation: Observation, client_model: ClientModel) -> int:
    """How many of the client's steps one evaluation goes through."""
    return observation.local_steps if client_model == "unrolled" else 1


def _mostly_dense(layers: Iterable[nn.Module]) -> bool:
    """Whether dense layers hold most weights, so that it pays to form none of each victim's own.

    Measured on one core: a LeNet for images of 128 x 128 takes two thirds of the time
    of `VmappedUnrolled` and two fifths of its memory, a ResNet20 half as much time again.
    """
    sizes = {True: 0, False: 0}
    for layer in layers:
        sizes[isinstance(layer, nn.Linear)] += sum(value.numel() for value in layer.parameters())
    return sizes[True] > sizes[False]


class Unrolled(ABC):
    """Mean gradient of T local steps of gradient descent, differentiated through all of them.

    Steps take the samples in their order, `Observation.mini_batch` at a time and from the first
    again after the last; in which order the client took them an attacker does not know.
    """

    def __init__(self, observation: Observation) -> None:
        self.observation = observation

    @abstractmethod
    def __call__(self, inputs: Tensor, targets: Tensor, observed: dict[str, Tensor]) -> list[Piece]:
        """One piece per parameter; see `gleak.matching.gradients.Gradients`."""

    def batches(self, inputs: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """What each step takes of every victim; Shape (V, mini_batch, ...)."""
        size = self.observation.mini_batch
        for step in range(self.observation.local_steps):
            first = step * size % self.observation.batch_size
            some = slice(first, first + size)
            yield inputs[:, some], targets[:, some]


class VmappedUnrolled(Unrolled):
    """Every victim has parameters of its own; serves any network."""

    def __init__(self, observation: Observation) -> None:
        super().__init__(observation)
        self._one_step = VmappedGradients(observation.model, observation.loss)

    def __call__(self, inputs: Tensor, targets: Tensor, observed: dict[str, Tensor]) -> list[Piece]:
        """See `Unrolled`; all pieces are formed."""
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
        for batch in self.batches(inputs, targets):
            gradients = self._one_step.gradients_at(parameters, *batch)
            total = {name: value + gradients[name] for name, value in total.items()}
            parameters = {
                name: value - rate * gradients[name] for name, value in parameters.items()
            }
        return {name: value / steps for name, value in total.items()}


class LayerwiseUnrolled(Unrolled):
    """Layers stay at the broadcast parameters; what the steps change is added to their outputs.

    No weights of a dense layer are formed but the broadcast ones, see `gleak.matching.local_steps`.
    """

    def __init__(self, observation: Observation, one_step: LayerwiseGradients) -> None:
        super().__init__(observation)
        self._one_step = one_step

    def __call__(self, inputs: Tensor, targets: Tensor, observed: dict[str, Tensor]) -> list[Piece]:
        """See `Unrolled`."""
        victims, rate = len(inputs), self.observation.local_lr
        layers = {
            name: STEPS[type(layer)](name, layer, victims, rate)
            for name, layer in self._one_step.layers.items()
        }
        moved: dict[str, Moved] = {}
        for batch in self.batches(inputs, targets):
            taken, backs = self._one_step.split(*batch, moved)
            for name, layer in layers.items():
                layer.follow(taken[name], backs[name])
            moved = {name: layer.moved for name, layer in layers.items()}
        steps = self.observation.local_steps
        return [piece for layer in layers.values() for piece in layer.pieces(observed, steps)]
