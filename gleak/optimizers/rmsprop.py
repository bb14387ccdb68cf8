"""RMSprop."""

from __future__ import annotations

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.optimizers.base import ClientOptimizer, Moments, root


@register("rmsprop")
class RMSprop(ClientOptimizer):
    """Gradient over the root of the mean square, as `torch.optim.RMSprop` if not centred."""

    source = "Hinton 2012; torch.optim.RMSprop"

    alpha: float = parameter(0.99, "decay of the mean square", source="torch", ge=0, le=1)
    momentum: float = parameter(0.0, "factor of the momentum buffer", source="torch", ge=0)
    weight_decay: float = parameter(
        0.0, "factor of the parameters that is added to gradients", source="torch", ge=0
    )
    eps: float = parameter(1e-8, "added to the root of the mean square", source="torch", ge=0)

    def initial(self, parameter: torch.Tensor) -> Moments:
        return torch.zeros_like(parameter), torch.zeros_like(parameter)

    def direction(
        self, parameter: torch.Tensor, gradient: torch.Tensor, moments: Moments, step: int
    ) -> tuple[torch.Tensor, Moments]:
        gradient = gradient + self.weight_decay * parameter
        square = self.alpha * moments[0] + (1 - self.alpha) * gradient.square()
        buffer = self.momentum * moments[1] + gradient / (root(square) + self.eps)
        return buffer, (square, buffer)

    def first_gradient(self, parameter: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        left = (1 - (1 - self.alpha) ** 0.5 * direction.abs()).clamp_min(0)
        return direction * (self.eps / left) - self.weight_decay * parameter
