"""Adam, gradient descent with momentum and Adagrad, over many independent problems at once."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from typing_extensions import override

from gleak.attacks.matching.optimizers.base import GradientOptimizerSpec, GradientState
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

BETAS = (0.9, 0.999)
EPSILON = 1e-8


@register("adam")
class Adam(GradientOptimizerSpec):
    """Adam (Kingma and Ba 2015), on the gradient or on its sign; one evaluation per iteration."""

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
        """Compute the learning rate after a share of the run, ``progress`` in [0, 1]."""
        if self.schedule == "cosine":
            fallen = (1 - math.cos(math.pi * progress)) / 2
            return self.lr * (1 - (1 - self.floor) * fallen)
        if self.schedule == "steps":
            return self.lr * 0.1 ** sum(progress >= share / 8 for share in (3, 5, 7))
        return self.lr

    @override
    def begin(self, points: torch.Tensor, iterations: int) -> GradientState:
        return AdamState(self, points, iterations)


class AdamState(GradientState):
    """Moments of V problems; each problem counts its own steps, so a restart resets the count."""

    def __init__(self, spec: Adam, points: torch.Tensor, iterations: int) -> None:
        self.spec, self.iterations = spec, iterations
        self.done = 0
        self.steps = points.new_zeros(len(points), 1)
        self.mean = points.new_zeros(points.shape)
        self.square = points.new_zeros(points.shape)

    @override
    def step(self, points: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        """Compute the next points; the schedule spans the whole run, restarts included."""
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

    def _correction(self, beta: float) -> torch.Tensor:
        """Compute the bias correction of a moment that was initialised to zero; Shape (V, 1).

        In double precision, since powers of one number and of several are rounded differently.
        """
        return (1 - beta ** self.steps.double()).to(self.steps.dtype)

    @override
    def keep(self, rows: torch.Tensor) -> None:
        self.steps, self.mean, self.square = self.steps[rows], self.mean[rows], self.square[rows]

    @override
    def restart(self, rows: torch.Tensor) -> None:
        for state in (self.steps, self.mean, self.square):
            state[rows] = 0


@register("sgd")
class SGD(GradientOptimizerSpec):
    """Gradient descent with momentum (Qian 1999), one evaluation per iteration.

    Steps are proportional to the gradient, so the learning rate has to suit the model: for a LeNet
    that was trained, or initialised with small weights, the objective is flat in the pixels, and
    the default hardly moves them.
    """

    source: ClassVar[str] = "CPL section 3.1"

    lr: float = parameter(
        10.0,
        "learning rate",
        source="ours; of 0.01 to 100 best or near it for LeNets with uniform weights",
        gt=0,
    )
    momentum: float = parameter(
        0.9,
        "share of the previous step that is kept; 0: plain gradient descent",
        source="ours",
        ge=0,
        lt=1,
    )

    @override
    def begin(self, points: torch.Tensor, iterations: int) -> GradientState:
        return SGDState(self, points)


class SGDState(GradientState):
    """Velocities of V problems; a restart sets them to zero."""

    def __init__(self, spec: SGD, points: torch.Tensor) -> None:
        self.spec = spec
        self.velocity = points.new_zeros(points.shape)

    @override
    def step(self, points: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        self.velocity.mul_(self.spec.momentum).add_(gradients)
        return points - self.spec.lr * self.velocity

    @override
    def keep(self, rows: torch.Tensor) -> None:
        self.velocity = self.velocity[rows]

    @override
    def restart(self, rows: torch.Tensor) -> None:
        self.velocity[rows] = 0


@register("adagrad")
class Adagrad(GradientOptimizerSpec):
    """Adagrad with diagonal scaling (Duchi et al. 2011), one evaluation per iteration."""

    source: ClassVar[str] = "CPL section 3.1"

    lr: float = parameter(
        0.1,
        "learning rate",
        source="ours; of 0.01 to 100 best or near it for LeNets with uniform weights",
        gt=0,
    )
    eps: float = parameter(
        1e-10, "added to the root of the summed squares", source="torch default", gt=0
    )

    @override
    def begin(self, points: torch.Tensor, iterations: int) -> GradientState:
        return AdagradState(self, points)


class AdagradState(GradientState):
    """Sums of squared gradients of V problems; a restart sets them to zero."""

    def __init__(self, spec: Adagrad, points: torch.Tensor) -> None:
        self.spec = spec
        self.squares = points.new_zeros(points.shape)

    @override
    def step(self, points: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        self.squares.addcmul_(gradients, gradients)
        return points - self.spec.lr * gradients / (self.squares.sqrt() + self.spec.eps)

    @override
    def keep(self, rows: torch.Tensor) -> None:
        self.squares = self.squares[rows]

    @override
    def restart(self, rows: torch.Tensor) -> None:
        self.squares[rows] = 0
