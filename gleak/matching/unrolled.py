"""The client's local training as the attacker repeats it.

The mean gradient of all local steps, each at the parameters that the steps before have led to
(InvertGrad, section 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from typing_extensions import override

from gleak.matching.distances.base import Piece
from gleak.matching.gradients import GeneralGradients, Gradients
from gleak.matching.layerwise import LayerwiseGradients, Moved
from gleak.matching.local_steps import STEPS
from gleak.matching.pieces import FormedPiece

if TYPE_CHECKING:
    from gleak.matching.client_training import ClientTraining


class Unrolled(Gradients):
    """Mean gradient of T local steps of gradient descent, differentiated through all of them.

    Steps take the samples in their order, a mini-batch at a time and from the first again after
    the last; in which order the client took them an attacker does not know.

    Args:
        training: the local training.
        one_step: gradients of one of its steps.
    """

    def __init__(self, training: ClientTraining, one_step: Gradients) -> None:
        self.training = training
        self._logits = one_step.logits

    @override
    def logits(self, inputs: Tensor) -> Tensor:
        return self._logits(inputs)

    def batches(self, inputs: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """What each step takes of every victim; Shape (V, mini_batch, ...)."""
        size = self.training.mini_batch
        for step in range(self.training.local_steps):
            first = step * size % self.training.batch_size
            some = slice(first, first + size)
            yield inputs[:, some], targets[:, some]


class GeneralUnrolled(Unrolled):
    """Every victim has parameters of its own; serves networks of any kind.

    Args:
        training: the local training.
        one_step: gradients of one of its steps.
    """

    def __init__(self, training: ClientTraining, one_step: GeneralGradients) -> None:
        super().__init__(training, one_step)
        self._one_step = one_step

    def __call__(self, inputs: Tensor, targets: Tensor, observed: dict[str, Tensor]) -> list[Piece]:
        """See `Unrolled`; all pieces are formed."""
        mean = self.mean_gradients(inputs, targets)
        return [FormedPiece(name, mean[name], observed[name]) for name in mean]

    def mean_gradients(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """For each parameter, Shape (V, *shape).

        The steps' gradients are added up: a difference of weights would be rounded to the weights'
        precision, which at a small learning rate is coarse.
        """
        rate, steps = self.training.local_lr, self.training.local_steps
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

    Args:
        training: the local training.
        one_step: gradients of one of its steps.
    """

    def __init__(self, training: ClientTraining, one_step: LayerwiseGradients) -> None:
        super().__init__(training, one_step)
        self._one_step = one_step

    def __call__(self, inputs: Tensor, targets: Tensor, observed: dict[str, Tensor]) -> list[Piece]:
        """See `Unrolled`."""
        victims, rate = len(inputs), self.training.local_lr
        layers = {
            name: STEPS[type(layer)](name, layer, victims, rate)
            for name, layer in self._one_step.layers.items()
        }
        moved: dict[str, Moved] = {}
        for batch in self.batches(inputs, targets):
            taken, output_gradients = self._one_step.split(*batch, moved)
            for name, layer in layers.items():
                layer.follow(taken[name], output_gradients[name])
            moved = {name: layer.moved for name, layer in layers.items()}
        steps = self.training.local_steps
        return [piece for layer in layers.values() for piece in layer.pieces(observed, steps)]
