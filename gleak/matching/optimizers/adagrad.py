"""Adagrad on many independent problems at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gleak.matching.optimizers.base import OptimizerSpec, OptimizerState
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from torch import Tensor


@register("adagrad")
class Adagrad(OptimizerSpec):
    """Adagrad with diagonal scales (Duchi et al. 2011), one evaluation an iteration."""

    source: ClassVar[str] = "CPL section 3.1"

    lr: float = knob(
        0.1,
        "learning rate",
        source="ours; of 0.01 to 100 best or near it for LeNets with uniform weights",
        gt=0,
    )
    eps: float = knob(
        1e-10, "added to the root of the summed squares", source="torch default", gt=0
    )

    def begin(self, points: Tensor, iterations: int) -> OptimizerState:
        """Start with empty sums; see `OptimizerSpec.begin`."""
        return AdagradState(self, points)


class AdagradState(OptimizerState):
    """Sums of squared gradients of V problems; a restarted one begins with an empty sum."""

    def __init__(self, spec: Adagrad, points: Tensor) -> None:
        self.spec = spec
        self.squares = points.new_zeros(points.shape)

    def step(self, points: Tensor, gradients: Tensor) -> Tensor:
        """See `OptimizerState.step`."""
        self.squares.addcmul_(gradients, gradients)
        return points - self.spec.lr * gradients / (self.squares.sqrt() + self.spec.eps)

    def keep(self, rows: Tensor) -> None:
        """See `OptimizerState.keep`."""
        self.squares = self.squares[rows]

    def restart(self, rows: Tensor) -> None:
        """See `OptimizerState.restart`."""
        self.squares[rows] = 0
