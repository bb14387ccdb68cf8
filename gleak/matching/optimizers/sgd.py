"""Gradient descent with momentum on many independent problems at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.matching.optimizers.base import OptimizerSpec, OptimizerState

if TYPE_CHECKING:
    from torch import Tensor


@register("sgd")
class SGD(OptimizerSpec):
    """Gradient descent with momentum (Qian 1999), one evaluation an iteration.

    Its steps follow the slope, so the rate has to suit the model: in the pixels of a LeNet that was
    trained, or drawn with small weights, the objective is flat, and the default hardly moves them.
    """

    source: ClassVar[str] = "CPL section 3.1"

    lr: float = parameter(
        10.0,
        "learning rate",
        source="ours; of 0.01 to 100 best or near it for LeNets with uniform weights",
        gt=0,
    )
    momentum: float = parameter(
        0.9, "share of the last step kept; 0: plain descent", source="ours", ge=0, lt=1
    )

    def begin(self, points: Tensor, iterations: int) -> OptimizerState:
        """Start at rest; see `OptimizerSpec.begin`."""
        return SGDState(self, points)


class SGDState(OptimizerState):
    """Velocities of V problems; a restarted one is at rest."""

    def __init__(self, spec: SGD, points: Tensor) -> None:
        self.spec = spec
        self.velocity = points.new_zeros(points.shape)

    @override
    def step(self, points: Tensor, gradients: Tensor) -> Tensor:
        self.velocity.mul_(self.spec.momentum).add_(gradients)
        return points - self.spec.lr * self.velocity

    @override
    def keep(self, rows: Tensor) -> None:
        self.velocity = self.velocity[rows]

    @override
    def restart(self, rows: Tensor) -> None:
        self.velocity[rows] = 0
