"""Gauss-Newton steps with damping (Levenberg-Marquardt), for distances that are sums of squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from gleak.attacks.matching import optimizers
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.runtime.gpu_loop import evaluations_between_reads

FIRST_DAMPING = 1e-3
"""First damping of a match, relative to the curvature along the gradient."""
LEAST_SHRINK, TRUSTED_SHRINK, TRUSTED = 1 / 3, 1 / 9, 0.9
"""Factors of the damping after a step as predicted, and after one with a gain of at least that
share of the predicted one."""
FIRST_GROWTH = 2.0
"""First factor of the damping after a step without gain."""
TRIES = 12
"""Number of dampings of one step; each is at least twice the one before."""
LEAST_GAIN = 0.2
"""Share of the distance that a step has to gain; another one is idle."""
MOST_IDLE = 10
"""Idle steps after which the match of all layers is given up."""


@register("gauss_newton")
class GaussNewton(optimizers.OptimizerSpec):
    """Levenberg-Marquardt in double precision; the gradients of a batch are matched layer by layer.

    A step d solves (J^T J + damping) d = -J^T r by conjugate gradients, r being the difference of
    the gradients and J its Jacobian, of which only products are computed. The damping follows the
    ratio of actual and predicted gain. Each victim has its own damping and is computed by itself;
    one iteration is one step, whatever number of dampings are tried.

    The distance of a batch's gradients has minima at which samples are mixed. The last layer's
    gradient tells the features of samples apart, so it is matched first, and the layers before it
    are added one by one, each when a step gains less than a fifth.
    """

    source = "Levenberg 1944, Marquardt 1963; damping: Nielsen 1999; order of layers: ours"
    needs_residuals: ClassVar[bool] = True

    order: Literal["auto", "last_first", "together"] = parameter(
        "auto",
        "layers are added from the last to the first, or matched together; auto: the first for "
        "several samples",
        source="ours",
    )
    accuracy: float = parameter(
        0.02, "residual of a step's equations, relative to that of no step", source="ours", gt=0
    )
    products: int = parameter(
        300, "most iterations of conjugate gradients for one step", source="ours", ge=1
    )
    steps: int = parameter(
        8, "most steps before a layer is added to the match", source="ours", ge=1
    )

    @property
    def cost_per_iteration(self) -> int:
        return self.products

    def bytes_per_unknown(self) -> int:
        """Return the memory of the vectors of one victim's step, in double precision."""
        return 64

    def begin(self, points: torch.Tensor, iterations: int) -> optimizers.OptimizerState:
        return GaussNewtonState(self, points)


class GaussNewtonState(optimizers.OptimizerState):
    """Dampings of V problems, and the layers that each of them matches.

    Problems are solved one after the other, so that none depends on the others by rounding. What is
    decided about them is kept on the CPU.
    """

    def __init__(self, spec: GaussNewton, points: torch.Tensor) -> None:
        self.spec = spec
        self.damping = torch.zeros(len(points), dtype=torch.double)
        self.growth = torch.full_like(self.damping, FIRST_GROWTH)
        self.added = torch.zeros_like(self.damping).long()
        self.taken, self.idle = torch.zeros_like(self.added), torch.zeros_like(self.added)

    def resume(self, state: Mapping[str, torch.Tensor]) -> None:
        super().resume({name: value.cpu() for name, value in state.items()})

    def advance(
        self,
        problem: optimizers.ObjectiveFunction,
        points: torch.Tensor,
        evaluation: optimizers.Evaluation,
        running: torch.Tensor,
    ) -> torch.Tensor:
        moved = points.clone()
        for row in running.nonzero().flatten().tolist():
            moved[row] = self._moved(problem.keep(slice(row, row + 1)), row, points[row])
        return moved

    def _moved(
        self, problem: optimizers.ObjectiveFunction, row: int, point: torch.Tensor
    ) -> torch.Tensor:
        """Return the next point of one problem; not finite if its attempt is given up."""
        assert isinstance(problem, GradientMatching)
        left = self._layers_left(problem, row)
        names = {name for layer in problem.layers[left:] for name in layer}
        here = Linearisation(lambda at: problem.residuals(at, names), point.double())
        step, gain = self._descent(here, row)
        if left:
            self.taken[row] += 1
            if gain < LEAST_GAIN or self.taken[row] >= self.spec.steps:
                self.added[row] += 1
                self._begin_match(row)
        else:
            self.idle[row] = self.idle[row] + 1 if gain < LEAST_GAIN else 0
            if gain <= 0 or self.idle[row] >= MOST_IDLE:
                return point * math.nan
        return (point + step).to(point)

    def _layers_left(self, problem: GradientMatching, row: int) -> int:
        """Return the number of layers that are not matched yet, the first ones."""
        order = self.spec.order
        if order == "together" or (order == "auto" and problem.shape[0] == 1):
            return 0
        return max(0, len(problem.layers) - 1 - int(self.added[row]))

    def _descent(self, here: Linearisation, row: int) -> tuple[torch.Tensor, float]:
        """Compute a step that lowers the sum of squares, and the share of it that the step gains.

        Without one within `TRIES` dampings, which change as in Nielsen 1999, both are zero.
        """
        slope, before = here.slope, here.residuals.square().sum()
        if not self.damping[row]:
            curvature = here.times(slope).square().sum() / slope.square().sum()
            self.damping[row] = FIRST_DAMPING * curvature.item()
        for _ in range(TRIES):
            damping = self.damping[row].item()
            step = damped_step(here, slope, damping, self.spec.accuracy, self.spec.products)
            gain = before - here.moved(step).square().sum()
            predicted = (step * (damping * step - slope)).sum()
            ratio, share = torch.stack([gain / predicted, gain / before]).tolist()
            if ratio > 0:  # the better the gain was predicted, the lower the damping
                least = TRUSTED_SHRINK if ratio > TRUSTED else LEAST_SHRINK
                self.damping[row] *= max(least, 1 - (2 * ratio - 1) ** 3)
                self.growth[row] = FIRST_GROWTH
                return step, share
            self.damping[row] *= self.growth[row]
            self.growth[row] *= 2
        return slope * 0, 0.0

    def _begin_match(self, rows: int | torch.Tensor) -> None:
        self.damping[rows], self.growth[rows] = 0, FIRST_GROWTH
        self.taken[rows] = self.idle[rows] = 0

    def keep(self, rows: torch.Tensor) -> None:
        rows = rows.cpu()
        for name in ("damping", "growth", "added", "taken", "idle"):
            setattr(self, name, getattr(self, name)[rows])

    def restart(self, rows: torch.Tensor) -> None:
        rows = rows.cpu()
        self._begin_match(rows)
        self.added[rows] = 0


def damped_step(
    here: Linearisation, slope: torch.Tensor, damping: float, accuracy: float, most: int
) -> torch.Tensor:
    """Solve (J^T J + damping) d = -slope by at most so many iterations of conjugate gradients.

    They stop where the remainder's length is ``accuracy``, relative to the slope's; on a GPU, the
    host looks only now and then whether they have.
    """
    between = evaluations_between_reads(slope.device)
    step, remainder = torch.zeros_like(slope), -slope
    direction, size = remainder, remainder @ remainder
    enough, going = accuracy**2 * size, torch.ones_like(size, dtype=torch.bool)
    for number in range(1, most + 1):
        image = here.transposed(here.times(direction)) + damping * direction
        rate = size / (direction @ image)
        step = torch.where(going, step + rate * direction, step)
        remainder = remainder - rate * image
        left = remainder @ remainder
        going &= left > enough
        if number % between == 0 and not going:
            break
        direction, size = remainder + left / size * direction, left
    return step


class Linearisation:
    """Residuals r of one victim at a point, Shape (P) to (R), and products with their Jacobian J.

    J is never formed. A product with its transpose is one backward pass; it is linear in the vector
    that it multiplies, so its derivative by that vector gives the products with J itself.
    """

    def __init__(
        self, residuals: Callable[[torch.Tensor], torch.Tensor], point: torch.Tensor
    ) -> None:
        self._function = residuals
        self._point = point.detach().requires_grad_()
        with torch.enable_grad():
            self._residuals = residuals(self._point)
            self._weights = torch.zeros_like(self._residuals, requires_grad=True)
            self._pulled = _derivative(
                self._residuals, self._point, self._weights, create_graph=True
            )
        self.residuals = self._residuals.detach()

    @property
    def slope(self) -> torch.Tensor:
        """Half the gradient of the sum of squared residuals, J^T r; Shape (P)."""
        return self.transposed(self.residuals)

    def moved(self, step: torch.Tensor) -> torch.Tensor:
        """Compute the residuals at another point; Shape (R)."""
        with torch.enable_grad():
            return self._function(self._point + step).detach()

    def times(self, direction: torch.Tensor) -> torch.Tensor:
        """Compute J d for a direction d of Shape (P); Shape (R)."""
        return _derivative(self._pulled, self._weights, direction)

    def transposed(self, weights: torch.Tensor) -> torch.Tensor:
        """Compute J^T w for weights w of Shape (R); Shape (P)."""
        return _derivative(self._residuals, self._point, weights)


def _derivative(
    outputs: torch.Tensor, inputs: torch.Tensor, weights: torch.Tensor, create_graph: bool = False
) -> torch.Tensor:
    """Compute the derivative of <outputs, weights> by the inputs, and keep the graph."""
    kept = {"retain_graph": True, "create_graph": create_graph}
    return torch.autograd.grad(outputs, inputs, weights, **kept, materialize_grads=True)[0]
