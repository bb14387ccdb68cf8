"""L-BFGS with a line search over many independent problems at once, each with its own steps."""

from __future__ import annotations

from typing import ClassVar

from gleak.attacks.matching.optimizers import (
    Evaluation,
    ObjectiveFunction,
    OptimizerSpec,
    OptimizerState,
)
from gleak.attacks.matching.quasi_newton import Histories, first_length
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

DECREASE, CURVATURE = 1e-4, 0.9
"""Shares of the first slope: that a step's mean slope has at least, and its last one at most."""
ROUNDING = 10
"""Rise of the objective that counts as rounding, in units of the precision of the points."""
TRIES = 20
"""Most steps tried along a direction."""
EXTENSION = 10
"""Factor by which a step is extended."""
MARGIN = 0.1
"""Distance of a step tried from both ends of its bracket, as a share of the bracket."""


@register("lbfgs_line_search")
class LineSearchLBFGS(OptimizerSpec):
    """Limited-memory BFGS with steps that meet the weak Wolfe conditions, one evaluation each.

    A step is accepted where the objective has decreased in proportion to the slope, and the slope
    has risen to 0.9 times the first one or above. Otherwise a bracket of such steps is narrowed, or
    extended, by cubic interpolation. Steps with an objective that is not finite are too long ones.
    Where no step is found, the history is forgotten; an attempt ends without one along the gradient
    itself. In a box, steps end at its bounds, and are judged where they end.
    """

    source: ClassVar[str] = (
        "Nocedal and Wright 2006, section 7.2 and algorithm 3.5; rounding: Hager and Zhang 2005"
    )
    steps_back: ClassVar[bool] = True

    history: int = parameter(
        20, "number of stored pairs of steps and gradient changes", source="ours", ge=1
    )

    def bytes_per_unknown(self) -> int:
        """Return the memory of two vectors per stored pair, and of the rest of the state."""
        return 8 * self.history + 48

    def begin(self, points: torch.Tensor, iterations: int) -> OptimizerState:
        return LineSearchState(points, min(self.history, iterations))


class LineSearchState(Histories):
    """Histories of V problems, and the present line search of each.

    A step that is tried is a row of its length along the direction, and the objective and the slope
    at its end.

    Attributes:
        begun: False where no point has been evaluated since the start; Shape (V), a mask.
        base: points from which the lines start; Shape (V, P).
        gradient: of the objective at the base; Shape (V, P).
        direction: Shape (V, P).
        first: step of length zero; Shape (V, 3).
        low: longest step tried that decreases the objective enough; Shape (V, 3).
        high: shortest step tried that does not, infinite without one; Shape (V, 3).
        length: of the present step; Shape (V).
        tries: number of steps tried; Shape (V).
    """

    def __init__(self, points: torch.Tensor, history: int) -> None:
        super().__init__(points, history)
        self.begun = points.new_zeros(len(points)).bool()
        self.base, self.gradient = torch.zeros_like(points), torch.zeros_like(points)
        self.direction = torch.zeros_like(points)
        self.first = points.new_zeros(len(points), 3).double()
        self.low, self.high = self.first.clone(), self.first.clone()
        self.length = torch.ones_like(self.first[:, 0])
        self.tries = torch.zeros_like(self.begun).long()

    def advance(
        self,
        problem: ObjectiveFunction,
        points: torch.Tensor,
        evaluation: Evaluation,
        running: torch.Tensor,
    ) -> torch.Tensor:
        step, value, gradient = points - self.base, evaluation.objective, evaluation.gradient
        slope = (gradient * step).sum(1) / self.length
        tried = torch.stack([self.length, value.double(), slope], 1)
        self.tries += 1
        over = self.tries >= TRIES
        finite = value.isfinite() & gradient.isfinite().all(1)
        falling = (self.gradient * step).sum(1) < 0
        lower = finite & falling & self._decreased(tried)
        steep = slope < CURVATURE * self.first[:, 2]
        accepted = torch.where(self.begun, lower & (~steep | over), finite)
        failed = self.begun & ~lower & (over & (self.low[:, 0] == 0) | ~falling)
        lost = ~(self.begun | finite) | failed & (self.count == 0)
        self._narrow(tried, lower, over)
        self._turn(points, evaluation, accepted, failed)
        moved = self.base + self.length[:, None].to(points) * self.direction
        return moved.masked_fill(lost[:, None], torch.nan)

    def _decreased(self, tried: torch.Tensor) -> torch.Tensor:
        """Mark steps that decrease the objective enough, or as far as it is precise; Shape (V)."""
        (_, before, first), (length, value, slope) = self.first.unbind(1), tried.unbind(1)
        rounding = ROUNDING * torch.finfo(self.base.dtype).eps * before.abs()
        flat = (value <= before + rounding) & (slope <= (2 * DECREASE - 1) * first)
        return flat | (value <= before + DECREASE * length * first)

    def _narrow(self, tried: torch.Tensor, lower: torch.Tensor, over: torch.Tensor) -> None:
        """Replace an end of the bracket by the step tried, and choose the next one."""
        self.low.copy_(torch.where(lower[:, None], tried, self.low))
        self.high.copy_(torch.where(lower[:, None], self.high, tried))
        least, most = self.low[:, 0], self.high[:, 0]
        margin = MARGIN * (most - least)
        inside = lowest_of_cubic(self.low, self.high).clamp(least + margin, most - margin)
        inside = torch.where(inside.isfinite(), inside, (least + most) / 2)
        longer = torch.where(most.isfinite(), inside, EXTENSION * least)
        self.length.copy_(torch.where(over, least, longer))

    def _turn(
        self,
        points: torch.Tensor,
        evaluation: Evaluation,
        accepted: torch.Tensor,
        failed: torch.Tensor,
    ) -> None:
        """Begin another line: at accepted points, and along the gradient where none was found."""
        step, change = points - self.base, evaluation.gradient - self.gradient
        self.base.copy_(torch.where(accepted[:, None], points, self.base))
        self.gradient.copy_(torch.where(accepted[:, None], evaluation.gradient, self.gradient))
        value = torch.where(accepted, evaluation.objective.double(), self.first[:, 1])
        super().restart(failed)
        direction = self.learn(step, change, accepted & self.begun, self.gradient)
        rising = ~((direction * self.gradient).sum(1) < 0)
        super().restart(rising)
        direction = torch.where(rising[:, None], -self.gradient, direction)
        slope = (direction * self.gradient).sum(1)
        turned = accepted | failed
        self.direction.copy_(torch.where(turned[:, None], direction, self.direction))
        first = torch.stack([torch.zeros_like(value), value, slope], 1)
        for known, new in ((self.first, first), (self.low, first), (self.high, torch.inf)):
            known.copy_(torch.where(turned[:, None], new, known))
        length = first_length(self.gradient).masked_fill(self.count > 0, 1)
        self.length.copy_(torch.where(turned, length, self.length))
        self.tries.masked_fill_(turned, 0)
        self.begun |= accepted

    def restart(self, rows: torch.Tensor) -> None:
        super().restart(rows)
        self.begun.masked_fill_(rows, False)


def lowest_of_cubic(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the minimiser of the cubic with these values and slopes; NaN without one; Shape (V).

    Equation 3.59 of Nocedal and Wright 2006.

    Args:
        one: length, value and slope; Shape (V, 3).
        other: Shape (V, 3).
    """
    (a, f_a, s_a), (b, f_b, s_b) = one.unbind(1), other.unbind(1)
    d_1 = s_a + s_b - 3 * (f_a - f_b) / (a - b)
    d_2 = (b - a).sign() * (d_1.square() - s_a * s_b).sqrt()
    return b - (b - a) * (s_b + d_2 - d_1) / (s_b - s_a + 2 * d_2)
