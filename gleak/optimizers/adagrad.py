"""Adagrad."""

from __future__ import annotations

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.optimizers.base import ClientOptimizer, Moments, root


@register("adagrad")
class Adagrad(ClientOptimizer):
    """Gradient over the root of the sum of all squares so far, as `torch.optim.Adagrad`."""

    source = "Duchi, Hazan and Singer 2011"

    lr_decay: float = parameter(0.0, "decay of the learning rate with steps", source="torch", ge=0)
    weight_decay: float = parameter(
        0.0, "factor of the parameters that is added to gradients", source="torch", ge=0
    )
    initial_accumulator_value: float = parameter(
        0.0, "sum of squares before the first step", source="torch", ge=0
    )
    eps: float = parameter(1e-10, "added to the root of the sum", source="torch", ge=0)

    def initial(self, parameter: torch.Tensor) -> Moments:
        return (torch.full_like(parameter, self.initial_accumulator_value),)

    def direction(
        self, parameter: torch.Tensor, gradient: torch.Tensor, moments: Moments, step: int
    ) -> tuple[torch.Tensor, Moments]:
        gradient = gradient + self.weight_decay * parameter
        total = moments[0] + gradient.square()
        return gradient / (root(total) + self.eps) / (1 + step * self.lr_decay), (total,)

    def first_gradient(self, parameter: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """Solve direction = gradient / (root + eps) for root = sqrt(start + gradient^2)."""
        start, square = self.initial_accumulator_value, direction.square()
        left = ((1 - direction.abs()) * (1 + direction.abs())).clamp_min(0)
        linear = square * self.eps
        root = (linear + (linear.square() + left * (start + linear * self.eps)).sqrt()) / left
        return direction * (root + self.eps) - self.weight_decay * parameter
