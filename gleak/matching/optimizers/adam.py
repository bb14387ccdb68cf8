"""Adam on many independent problems at once, plain or on the sign of the gradient."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.matching.optimizers.base import OptimizerSpec, OptimizerState

if TYPE_CHECKING:
    from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-8


@register("adam")
class Adam(OptimizerSpec):
    """Adam (Kingma and Ba 2015), one evaluation an iteration."""

    lr: float = parameter(0.1, "learning rate at the start", source="InvertGrad", gt=0)
    signed: bool = parameter(False, "use the sign of the gradient", source="InvertGrad")
    schedule: Literal["constant", "steps", "cosine"] = parameter(
        "constant",
        "steps: a tenth at 3/8, 5/8 and 7/8 of the run; cosine: down to floor",
        source="InvertGrad",
    )
    floor: float = parameter(
        0.0, "share of the learning rate at the end of a cosine schedule", source="ROG: 0.1", ge=0
    )

    def rate(self, progress: float) -> float:
        """Learning rate after a share of the run, ``progress`` in [0, 1]."""
        if self.schedule == "cosine":
            fallen = (1 - math.cos(math.pi * progress)) / 2
            return self.lr * (1 - (1 - self.floor) * fallen)
        if self.schedule == "steps":
            return self.lr * 0.1 ** sum(progress >= share / 8 for share in (3, 5, 7))
        return self.lr

    def begin(self, points: Tensor, iterations: int) -> OptimizerState:
        """Start with zero moments; see `OptimizerSpec.begin`."""
        return AdamState(self, points, iterations)


class AdamState(OptimizerState):
    """Moments of V problems; each counts its own steps, so a restarted one begins anew."""

    def __init__(self, spec: Adam, points: Tensor, iterations: int) -> None:
        self.spec, self.iterations = spec, iterations
        self.done = 0
        self.steps = points.new_zeros(len(points), 1)
        self.mean = points.new_zeros(points.shape)
        self.square = points.new_zeros(points.shape)

    @override
    def step(self, points: Tensor, gradients: Tensor) -> Tensor:
        """The schedule follows the whole run, restarts included."""
        if self.spec.signed:
            gradients = gradients.sign()
        rate = self.spec.rate(self.done / self.iterations)
        self.done += 1
        self.steps += 1
        self.mean.lerp_(gradients, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(gradients, gradients, value=1 - BETAS[1])
        mean = self.mean / self._correction(BETAS[0])
        deviation = (self.square / self._correction(BETAS[1])).sqrt()
        return points - rate * mean / (deviation + EPSILON)

    def _correction(self, beta: float) -> Tensor:
        """What a moment that began at zero is divided by; Shape (V, 1).

        In double precision, since powers of one number and of several are rounded differently.
        """
        return (1 - beta ** self.steps.double()).to(self.steps.dtype)

    @override
    def keep(self, rows: Tensor) -> None:
        self.steps, self.mean, self.square = self.steps[rows], self.mean[rows], self.square[rows]

    @override
    def restart(self, rows: Tensor) -> None:
        for state in (self.steps, self.mean, self.square):
            state[rows] = 0
