"""L-BFGS over many independent problems at once, each with its own history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gleak.attacks.matching.optimizers import GradientOptimizerSpec, GradientState, OptimizerState
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

CURVATURE_FLOOR = 1e-10


@register("lbfgs")
class LBFGS(GradientOptimizerSpec):
    """Limited-memory BFGS with a fixed step, like `torch.optim.LBFGS` without a line search.

    One iteration is ``inner`` evaluations, which is how papers that use torch's optimizer count.
    """

    lr: float = parameter(
        1.0, "step size along the quasi-Newton direction", source="CPL section 4.1", gt=0
    )
    history: int = parameter(
        100, "number of stored pairs of steps and gradient changes", source="torch default", ge=1
    )
    inner: int = parameter(20, "evaluations in one iteration", source="torch default", ge=1)

    @property
    def evaluations_per_iteration(self) -> int:
        return self.inner

    def bytes_per_unknown(self) -> int:
        """Return the memory of two vectors per stored pair, and of the rest of the state."""
        return 8 * self.history + 32

    def begin(self, points: torch.Tensor, iterations: int) -> GradientState:
        return LBFGSState(points, self.lr, min(self.history, iterations * self.inner))


class Histories(OptimizerState):
    """Histories of V problems and the search directions computed from them.

    The inverse Hessian is applied in its compact form (Byrd, Nocedal and Schnabel 1994, Eq. 3.1):
    two passes over the histories and triangular systems of the history's size, which are solved in
    double precision. Pairs are stored in a circular buffer; triangles are sorted by age.
    """

    def __init__(self, points: torch.Tensor, history: int) -> None:
        victims, unknowns = points.shape
        self.history = history
        self.pairs = points.new_zeros(victims, 2, min(history, 8), unknowns)
        self.steps_changes = points.new_zeros(victims, history, history).double()
        self.changes_changes = self.steps_changes.clone()
        self.count = points.new_zeros(victims).long()
        self.scale = points.new_ones(victims)

    def prepare(self, release: Callable[[], None]) -> None:
        """Grow the histories in doublings, so that early steps cost little."""
        reserved = self.pairs.shape[2]
        if reserved < min(self.history, self.number):
            release()
            added = min(self.history, 2 * reserved) - reserved
            self.pairs = torch.nn.functional.pad(self.pairs, (0, 0, 0, added))
        super().prepare(release)

    def learn(
        self, step: torch.Tensor, change: torch.Tensor, where: torch.Tensor, gradients: torch.Tensor
    ) -> torch.Tensor:
        """Store pairs, and compute minus the inverse Hessian times the gradients; Shape (V, P).

        Args:
            step: between two points; Shape (V, P).
            change: of the gradient between them; Shape (V, P).
            where: problems whose pair is stored if its curvature is positive; Shape (V), a mask.
            gradients: Shape (V, P).
        """
        kept, slots = self._store(step, change, where)
        # both share one pass over the histories, which dominates the cost of an iteration
        both = torch.stack([gradients, change], 1) @ self.pairs.flatten(1, 2).mT
        stored = self.pairs.shape[2]
        used = torch.arange(stored, device=step.device) < self.count[:, None]
        products = torch.where(used.repeat(1, 2)[:, None], both, 0)
        along_gradients, along_change = products.transpose(0, 1).double()
        by_steps, by_changes = along_change.split(stored, 1)
        column = (_numbers(slots), slice(stored), slots)
        for matrix, new in (
            (self.steps_changes, by_steps),
            (self.changes_changes, by_changes),
            (self.changes_changes.mT, by_changes),
        ):
            _assign(matrix, column, kept[:, None], new)
        return self._direction(gradients, along_gradients)

    def _store(
        self, step: torch.Tensor, change: torch.Tensor, where: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store pairs of positive curvature.

        Returns a mask of their problems, and their slots, Shape (V) each.
        """
        curvature = (change * step).sum(1)
        floor = CURVATURE_FLOOR * change.norm(dim=1) * step.norm(dim=1)
        kept = where & (curvature > floor)
        slots = self.count % self.history
        pair = torch.stack([step, change], 1)
        _assign(self.pairs, (_numbers(slots), slice(None), slots), kept[:, None, None], pair)
        self.count += kept
        scale = curvature / change.square().sum(1)
        self.scale.copy_(torch.where(kept, scale, self.scale))
        return kept, slots

    def _direction(self, gradients: torch.Tensor, projected: torch.Tensor) -> torch.Tensor:
        """Compute minus the inverse Hessian times the gradient; Shape (V, P)."""
        along_steps, along_changes = projected.unflatten(1, (2, -1)).unbind(1)
        scale = self.scale.double()[:, None]
        triangle, order = self._triangle(projected.shape[1] // 2)
        solved = _solve(triangle, order, along_steps)
        stored = solved.shape[1]
        inner = self.changes_changes[:, :stored, :stored] @ solved[:, :, None]
        curvatures = self.steps_changes.diagonal(dim1=1, dim2=2)[:, :stored]
        right = scale * (inner.squeeze(2) - along_changes) + curvatures * solved
        steps = _solve(triangle, order, right, transposed=True)
        weights = torch.cat([steps, -scale * solved], 1).to(gradients.dtype)
        combined = weights[:, None] @ self.pairs.flatten(1, 2)
        return -(self.scale[:, None] * gradients + combined.squeeze(1))

    def _triangle(self, stored: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return products of each step with later changes, and slots; by age, unused ones last."""
        start = self.count % self.history * (self.count >= self.history)
        slots = torch.arange(stored, device=start.device)
        order = (start[:, None] + slots) % stored
        problems = _numbers(order)[:, None, None]
        triangle = self.steps_changes[problems, order[:, :, None], order[:, None, :]]
        triangle.diagonal(dim1=1, dim2=2).masked_fill_(slots >= self.count[:, None], 1.0)
        return triangle, order

    def restart(self, rows: torch.Tensor) -> None:
        """Forget what is stored; pairs are left, and are ignored without their count."""
        for matrix in (self.steps_changes, self.changes_changes):
            matrix.masked_fill_(rows[:, None, None], 0)
        self.count.masked_fill_(rows, 0)
        self.scale.masked_fill_(rows, 1)


class LBFGSState(Histories, GradientState):
    """Histories, and the last step and gradient of V problems."""

    def __init__(self, points: torch.Tensor, lr: float, history: int) -> None:
        super().__init__(points, history)
        self.lr = lr
        self.begun = points.new_zeros(len(points)).bool()
        self.gradient = points.new_zeros(points.shape)
        self.taken = points.new_zeros(points.shape)

    def step(self, points: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        direction = self.learn(self.taken, gradients - self.gradient, self.begun, gradients)
        length = self.lr * first_length(gradients).masked_fill(self.begun, 1.0)
        self.taken.copy_(direction * length[:, None])
        self.gradient.copy_(gradients)
        self.begun.fill_(True)
        return points + self.taken

    def restart(self, rows: torch.Tensor) -> None:
        super().restart(rows)
        self.begun.masked_fill_(rows, False)


def first_length(gradients: torch.Tensor) -> torch.Tensor:
    """Return the length of a first step along minus the gradient, as torch has it; Shape (V)."""
    return (1 / gradients.abs().sum(1).clamp_min(1e-30)).clamp_max(1.0)


def _solve(
    triangle: torch.Tensor, order: torch.Tensor, right: torch.Tensor, *, transposed: bool = False
) -> torch.Tensor:
    """Solve the triangle (or its transpose), both sides in the order of slots; Shape (V, K)."""
    by_age = right.gather(1, order)[:, :, None]
    matrix = triangle.mT if transposed else triangle
    solved = torch.linalg.solve_triangular(matrix, by_age, upper=not transposed)
    return torch.empty_like(right).scatter_(1, order, solved.squeeze(2))


def _numbers(values: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(values), device=values.device)


def _assign(
    values: torch.Tensor, places: tuple[Any, ...], where: torch.Tensor, new: torch.Tensor
) -> None:
    """Set values at these places where a mask says so, in place."""
    values[places] = torch.where(where, new, values[places])
