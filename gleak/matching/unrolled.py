"""The client's local training as the attacker repeats it.

`client_gradients` is what the engine matches: one step's gradient, or the mean gradient of all
local steps, each at the parameters that the steps before have led to (InvertGrad, section 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.func import functional_call, grad, vmap

from gleak.matching.distances.base import Piece
from gleak.matching.gradients import Gradients, choose_gradients
from gleak.matching.pieces import FormedPiece
from gleak.models.losses import sample_losses

if TYPE_CHECKING:
    from gleak.attacks.base import Observation
    from gleak.matching.parts import ClientModel


def client_gradients(observation: Observation, client_model: ClientModel) -> Gradients:
    """The fastest way to the gradients that the attacker's model of the client gives."""
    if client_model == "unrolled" and observation.local_steps > 1:
        return UnrolledGradients(observation)
    return choose_gradients(observation.model, observation.loss, observation.input_shape)


class UnrolledGradients:
    """Mean gradient of T local steps of gradient descent, differentiated through all of them.

    Steps take the samples in their order, `Observation.mini_batch` at a time and from the first
    again after the last; in which order the client took them an attacker does not know.
    """

    def __init__(self, observation: Observation) -> None:
        model, loss = observation.model, observation.loss
        self.observation = observation
        self.parameters = {name: value.detach() for name, value in model.named_parameters()}

        def step_loss(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
            logits = functional_call(model, parameters, (inputs,))
            return sample_losses(loss, logits, targets).mean()

        self._step = grad(step_loss)
        self._train = vmap(self._mean_gradient, in_dims=(0, 0))

    def __call__(self, inputs: Tensor, targets: Tensor, observed: dict[str, Tensor]) -> list[Piece]:
        """One formed piece per parameter; see `gleak.matching.gradients.Gradients`."""
        mean = self._train(inputs, targets)
        return [FormedPiece(name, mean[name], observed[name]) for name in mean]

    def _mean_gradient(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Of one client; inputs Shape (N, *sample shape)."""
        rate, steps = self.observation.local_lr, self.observation.local_steps
        size, parameters = self.observation.mini_batch, self.parameters
        for step in range(steps):
            first = step * size % len(inputs)
            some = slice(first, first + size)
            gradients = self._step(parameters, inputs[some], targets[some])
            parameters = {
                name: value - rate * gradients[name] for name, value in parameters.items()
            }
        return {
            name: (value - parameters[name]) / (rate * steps)
            for name, value in self.parameters.items()
        }
