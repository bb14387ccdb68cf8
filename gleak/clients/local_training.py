"""Course of a client's local steps, for simulated clients and for attacks that unroll them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from gleak.artifacts.protocol import Protocol
from gleak.core.lazy import torch
from gleak.models.parameters import Tensors
from gleak.optimizers.base import Moments

MARGIN = 1e-6
"""Added to the norm of a gradient that is clipped, as by `torch.nn.utils.clip_grad_norm_`."""


@dataclass(frozen=True)
class LocalTraining:
    """Parameters and state of the optimiser after some local steps; differentiable.

    Args:
        protocol: of the client.
        start: broadcast parameters, Shape (*shape), or (V, *shape) of several clients.
        parameters: after the steps, of the same shapes.
        moments: state of the optimiser for each parameter.
        steps: number of steps of the round so far.
        earlier: number of steps that the optimiser took before the round.
        total: sum of the steps' directions, times the factors of the schedule.
        clients: number of leading axes of the parameters, over clients: 0 or 1.
    """

    protocol: Protocol
    start: Tensors
    parameters: Tensors
    moments: dict[str, Moments]
    steps: int = 0
    earlier: int = 0
    total: Tensors = field(default_factory=dict)
    clients: int = 0

    @classmethod
    def of(cls, protocol: Protocol, parameters: Tensors, clients: int = 0) -> Self:
        """Return the beginning of a round at these parameters."""
        moments = {name: protocol.optimizer.initial(value) for name, value in parameters.items()}
        return cls(protocol, parameters, parameters, moments, clients=clients)

    def again(self) -> Self:
        """Return the beginning of another round there, with the state of the optimiser kept."""
        taken = self.earlier + self.steps
        return replace(self, parameters=self.start, steps=0, earlier=taken, total={})

    def after(self, gradients: Tensors) -> Self:
        """Take one step, given the gradients of the loss at the parameters."""
        factor, directions, moments = self._directions(gradients)
        rate = factor * self.protocol.local_lr
        parameters, total = {}, {}
        for name, direction in directions.items():
            parameters[name] = torch.add(self.parameters[name], direction, alpha=-rate)
            weighted = direction if factor == 1 else factor * direction
            total[name] = self.total[name] + weighted if name in self.total else weighted
        return replace(
            self, parameters=parameters, moments=moments, total=total, steps=self.steps + 1
        )

    def moved(self, gradients: Tensors) -> Self:
        """Take one step as in `after`, in place of the parameters, which no graph contains."""
        factor, directions, moments = self._directions(gradients)
        for name, direction in directions.items():
            self.parameters[name].add_(direction, alpha=-factor * self.protocol.local_lr)
            if name in self.total:
                self.total[name].add_(direction, alpha=factor)
        total = self.total or {name: factor * value for name, value in directions.items()}
        return replace(self, moments=moments, total=total, steps=self.steps + 1)

    def _directions(self, gradients: Tensors) -> tuple[float, Tensors, dict[str, Moments]]:
        """Return the next step's factor of the schedule, its directions, and the state after it."""
        protocol, directions, moments = self.protocol, {}, {}
        for name, gradient in self._clipped(self._with_proximal(gradients)).items():
            directions[name], moments[name] = protocol.optimizer.direction(
                self.parameters[name], gradient, self.moments[name], self.earlier + self.steps
            )
        return protocol.factors[self.steps], directions, moments

    @property
    def mean_direction(self) -> Tensors:
        """Mean of the steps' directions, weighted by their learning rates.

        It is exact, whereas the difference of the parameters is rounded.
        """
        weight = sum(self.protocol.factors[: self.steps])
        return {name: value / weight for name, value in self.total.items()}

    def _with_proximal(self, gradients: Tensors) -> Tensors:
        factor = self.protocol.proximal
        if factor is None:
            return gradients
        return {
            name: value + factor * (self.parameters[name] - self.start[name])
            for name, value in gradients.items()
        }

    def _clipped(self, gradients: Tensors) -> Tensors:
        if (most := self.protocol.clip_value) is not None:
            gradients = {name: value.clamp(-most, most) for name, value in gradients.items()}
        if (longest := self.protocol.clip_norm) is None:
            return gradients
        squares = [value.square().flatten(self.clients).sum(-1) for value in gradients.values()]
        norm = torch.stack(squares).sum(0).clamp_min(torch.finfo(squares[0].dtype).tiny).sqrt()
        scale = (longest / (norm + MARGIN)).clamp_max(1)
        return {
            name: value * scale.reshape(*scale.shape, *[1] * (value.ndim - self.clients))
            for name, value in gradients.items()
        }


def steps_of_epoch(protocol: Protocol, samples: int) -> int:
    """Return the number of steps in which all samples are used once, see `epoch_batches`."""
    whole, left = divmod(samples, protocol.mini_batch)
    return whole if protocol.drop_last or not left else whole + 1


def epoch_batches(protocol: Protocol, samples: int) -> list[torch.Tensor]:
    """Return the positions of the samples of each local step, epoch after epoch.

    What is left after an epoch's whole mini-batches is a smaller one, or left out, as in
    `torch.utils.data.DataLoader`. If samples are shuffled, every epoch draws a new order from
    torch's global generator.
    """
    batches: list[torch.Tensor] = []
    while len(batches) < protocol.local_steps:
        shuffled = protocol.order == "shuffled"
        order = torch.randperm(samples) if shuffled else torch.arange(samples)
        batches += order.split(protocol.mini_batch)[: steps_of_epoch(protocol, samples)]
    return batches[: protocol.local_steps]
