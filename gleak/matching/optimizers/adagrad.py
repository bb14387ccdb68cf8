"""Adagrad on many independent problems at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.matching.optimizers.base import OptimizerSpec, OptimizerState

if TYPE_CHECKING:
    from torch import Tensor


@register("adagrad")
class Adagrad(OptimizerSpec):
    """Adagrad with diagonal scales (Duchi et al. 2011), one evaluation an iteration."""

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

    def begin(self, points: Tensor, iterations: int) -> OptimizerState:
        """Start with empty sums; see `OptimizerSpec.begin`."""
        return AdagradState(self, points)


class AdagradState(OptimizerState):
    """Sums of squared gradients of V problems; a restarted one begins with an empty sum."""

    def __init__(self, spec: Adagrad, points: Tensor) -> None:
        self.spec = spec
        self.squares = points.new_zeros(points.shape)

    @override
    def step(self, points: Tensor, gradients: Tensor) -> Tensor:
        self.squares.addcmul_(gradients, gradients)
        return points - self.spec.lr * gradients / (self.squares.sqrt() + self.spec.eps)

    @override
    def keep(self, rows: Tensor) -> None:
        self.squares = self.squares[rows]

    @override
    def restart(self, rows: Tensor) -> None:
        self.squares[rows] = 0
