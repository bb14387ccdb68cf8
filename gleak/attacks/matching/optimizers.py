"""Optimizers over many independent problems at once: base classes, and those of first order."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol, Self

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter

BETAS = (0.9, 0.999)
EPSILON = 1e-8


@dataclass(frozen=True)
class Evaluation:
    """Objective, distance and gradient at V points.

    Args:
        objective: Shape (V), distance and priors, relative to the distance's scale.
        distance: Shape (V), of the matched quantity alone, relative to the same scale.
        gradient: Shape (V, P), of the objective.
    """

    objective: torch.Tensor
    distance: torch.Tensor
    gradient: torch.Tensor

    def in_double_precision(self) -> Evaluation:
        """Return it with objective and distance in double precision, and the same gradient."""
        return replace(self, objective=self.objective.double(), distance=self.distance.double())

    def plus(self, other: Evaluation, weight: float) -> Evaluation:
        """Add ``weight`` times another evaluation at the same points."""
        return Evaluation(
            self.objective + weight * other.objective,
            self.distance + weight * other.distance,
            self.gradient + weight * other.gradient,
        )


class ObjectiveFunction(Protocol):
    """Function of points that a search minimises, a `gleak.attacks.matching.problem.Problem`."""

    def keep(self, rows: torch.Tensor | slice) -> Self:
        """Return the function of these victims alone."""

    def evaluate(self, points: torch.Tensor) -> Evaluation:
        """Compute the function and its gradient at V points; Shape (V, P)."""


class OptimizerState(ABC):
    """State of an optimizer over V independent problems, advanced together.

    Each row of its tensors with axes is a separate problem, and no row influences another.
    """

    number: int = 0
    """Number of steps for which the state was prepared."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return what one step passes to the next: the attributes that are tensors or integers."""
        return {
            name: torch.as_tensor(value)
            for name, value in vars(self).items()
            if isinstance(value, torch.Tensor | int)
        }

    def resume(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore the state that `state` returned."""
        for name, value in state.items():
            number = isinstance(getattr(self, name), int)
            setattr(self, name, int(value) if number else value)

    def prepare(self, release: Callable[[], None]) -> None:
        """Do what the host decides about the next step, before it, as by the number of steps taken.

        The steps themselves change the state's tensors in place, and read no values of them.

        Args:
            release: called before tensors of the state are replaced by others.
        """
        self.number += 1

    @abstractmethod
    def advance(
        self,
        problem: ObjectiveFunction,
        points: torch.Tensor,
        evaluation: Evaluation,
        running: torch.Tensor,
    ) -> torch.Tensor:
        """Compute the next points; Shape (V, P).

        One that is not finite ends the attempt of its problem.

        Args:
            problem: of these victims.
            points: the present ones; Shape (V, P).
            evaluation: of the problem at these points.
            running: problems whose next points matter; Shape (V), a mask.
        """

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all problems except these; Shape (W), indices or a mask."""
        for name, value in self._by_row().items():
            setattr(self, name, value[rows])

    def restart(self, rows: torch.Tensor) -> None:
        """Reset the state of these problems, to zero by default; Shape (V), a mask."""
        for value in self._by_row().values():
            value.masked_fill_(rows.view(-1, *[1] * (value.ndim - 1)), 0)

    def _by_row(self) -> dict[str, torch.Tensor]:
        values = vars(self).items()
        return {name: one for name, one in values if isinstance(one, torch.Tensor) and one.ndim}


class GradientState(OptimizerState):
    """State of an optimizer that needs no more than the objective's gradients."""

    @abstractmethod
    def step(self, points: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        """Compute the next points from the present ones and their gradients; Shape (V, P) each."""

    def advance(
        self,
        problem: ObjectiveFunction,
        points: torch.Tensor,
        evaluation: Evaluation,
        running: torch.Tensor,
    ) -> torch.Tensor:
        return self.step(points, evaluation.gradient)


class OptimizerSpec(Spec):
    """Rule by which points move; one iteration may be several evaluations."""

    kind: ClassVar[str] = "optimizer"
    needs_residuals: ClassVar[bool] = False
    """True if the rule needs the residuals of gradients, and not only the objective's gradient."""
    steps_back: ClassVar[bool] = False
    """True if the rule itself leaves points where the objective is not finite, or has risen."""

    @property
    def evaluations_per_iteration(self) -> int:
        """Number of evaluations of value and gradient that count as one iteration."""
        return 1

    @property
    def cost_per_iteration(self) -> int:
        """Cost of one iteration in evaluations of value and gradient, for estimates of time."""
        return self.evaluations_per_iteration

    def bytes_per_unknown(self) -> int:
        """Return the memory of the state for each unknown of one victim, in float32."""
        return 16

    @abstractmethod
    def begin(self, points: torch.Tensor, iterations: int) -> OptimizerState:
        """Initialise the state for V first points, Shape (V, P), and a budget of iterations."""


class GradientOptimizerSpec(OptimizerSpec):
    """Rule that needs no more than the objective's gradients, whatever the objective."""

    @abstractmethod
    def begin(self, points: torch.Tensor, iterations: int) -> GradientState: ...


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

    def begin(self, points: torch.Tensor, iterations: int) -> GradientState:
        return AdamState(self, points, iterations)


class AdamState(GradientState):
    """Moments of V problems; each problem counts its own steps, so a restart resets the count."""

    def __init__(self, spec: Adam, points: torch.Tensor, iterations: int) -> None:
        self.spec, self.iterations = spec, iterations
        self.rate = points.new_zeros(())
        self.steps = points.new_zeros(len(points), 1)
        self.mean = points.new_zeros(points.shape)
        self.square = points.new_zeros(points.shape)

    def prepare(self, release: Callable[[], None]) -> None:
        """Set the learning rate, whose schedule spans the whole run, restarts included."""
        self.rate.fill_(self.spec.rate(self.number / self.iterations))
        super().prepare(release)

    def step(self, points: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        if self.spec.signed:
            gradients = gradients.sign()
        self.steps += 1
        self.mean.lerp_(gradients, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(gradients, gradients, value=1 - BETAS[1])
        # in double precision, since powers of one number and of several are rounded differently
        corrections = [(1 - beta ** self.steps.double()).to(self.steps.dtype) for beta in BETAS]
        mean, deviation = self.mean / corrections[0], (self.square / corrections[1]).sqrt()
        return points - self.rate * mean / (deviation + EPSILON)


@register("sgd")
class SGD(GradientOptimizerSpec):
    """Gradient descent with momentum (Qian 1999), one evaluation per iteration.

    Steps are proportional to the gradient, so the learning rate has to suit the model: where a
    LeNet was trained, or has small weights, the objective is flat, and the default hardly moves.
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

    def begin(self, points: torch.Tensor, iterations: int) -> GradientState:
        return SGDState(self, points)


class SGDState(GradientState):
    """Velocities of V problems."""

    def __init__(self, spec: SGD, points: torch.Tensor) -> None:
        self.spec = spec
        self.velocity = points.new_zeros(points.shape)

    def step(self, points: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        self.velocity.mul_(self.spec.momentum).add_(gradients)
        return points - self.spec.lr * self.velocity


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

    def begin(self, points: torch.Tensor, iterations: int) -> GradientState:
        return AdagradState(self, points)


class AdagradState(GradientState):
    """Sums of squared gradients of V problems."""

    def __init__(self, spec: Adagrad, points: torch.Tensor) -> None:
        self.spec = spec
        self.squares = points.new_zeros(points.shape)

    def step(self, points: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        self.squares.addcmul_(gradients, gradients)
        return points - self.spec.lr * gradients / (self.squares.sqrt() + self.spec.eps)
