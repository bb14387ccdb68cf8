"""Base classes of the optimizers of a search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.lazy import torch
from gleak.core.spec import Spec

if TYPE_CHECKING:
    from gleak.attacks.matching.parts import Parts
    from gleak.attacks.matching.problem import Evaluation, Problem


class OptimizerState(ABC):
    """State of an optimizer over V independent problems, advanced together.

    Each row is a separate problem, and no row influences another. Attributes that are tensors or
    integers are the state that one step passes to the next.
    """

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state that one step passes to the next, by attribute."""

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

    @abstractmethod
    def advance(
        self, problem: Problem, points: torch.Tensor, evaluation: Evaluation, running: torch.Tensor
    ) -> torch.Tensor:
        """Compute the next points.

        Args:
            problem: of these victims.
            points: the present ones; Shape (V, P).
            evaluation: of the problem at these points.
            running: problems whose next points matter; Shape (V), a mask.

        Returns:
            Shape (V, P); a point that is not finite ends the attempt of its problem.
        """

    @abstractmethod
    def keep(self, rows: torch.Tensor) -> None:
        """Drop all problems except these; Shape (W), indices or a mask."""

    @abstractmethod
    def restart(self, rows: torch.Tensor) -> None:
        """Reset the state of these problems; Shape (V), a mask."""


class GradientState(OptimizerState):
    """State of an optimizer that needs no more than the objective's gradients."""

    @abstractmethod
    def step(self, points: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        """Compute the next points from the present ones and their gradients; Shape (V, P) each."""

    @override
    def advance(
        self, problem: Problem, points: torch.Tensor, evaluation: Evaluation, running: torch.Tensor
    ) -> torch.Tensor:
        return self.step(points, evaluation.gradient)


class OptimizerSpec(Spec):
    """Rule by which points move; one iteration may be several evaluations."""

    kind: ClassVar[str] = "optimizer"

    needs_residuals: ClassVar[bool] = False
    """True if the rule needs the residuals of gradients, and not only the objective's gradient."""

    @property
    def evaluations_per_iteration(self) -> int:
        """Number of evaluations of value and gradient that count as one iteration."""
        return 1

    @property
    def cost_per_iteration(self) -> int:
        """Cost of one iteration in evaluations of value and gradient, for estimates of time."""
        return self.evaluations_per_iteration

    def check_parts(self, parts: Parts) -> None:
        """Check that the rule can minimise the objective of an attack; by default, any.

        Raises:
            IncompatibleError: names what the rule does not support.
        """

    def bytes_per_unknown(self) -> int:
        """Return the memory of the state for each unknown of one victim, in float32."""
        return 16

    @abstractmethod
    def begin(self, points: torch.Tensor, iterations: int) -> OptimizerState:
        """Initialise the state for V problems.

        Args:
            points: the first ones; Shape (V, P).
            iterations: the budget.
        """


class GradientOptimizerSpec(OptimizerSpec):
    """Rule that needs no more than the objective's gradients, whatever the objective."""

    @abstractmethod
    @override
    def begin(self, points: torch.Tensor, iterations: int) -> GradientState: ...
