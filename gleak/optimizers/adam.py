"""Adam, and AdamW, whose weight decay is no part of the gradient."""

from __future__ import annotations

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.optimizers.base import ClientOptimizer, Moments, root


class Adaptive(ClientOptimizer):
    """Step along the mean of gradients over the root of their mean square, both debiased.

    The first step from a state of zeros is g / (|g| + eps), so nearly the sign of the gradient.
    """

    beta1: float = parameter(0.9, "decay of the mean of gradients", source="torch", ge=0, lt=1)
    beta2: float = parameter(0.999, "decay of their mean square", source="torch", ge=0, lt=1)
    eps: float = parameter(1e-8, "added to the root of the mean square", source="torch", ge=0)

    def initial(self, parameter: torch.Tensor) -> Moments:
        return torch.zeros_like(parameter), torch.zeros_like(parameter)

    def adapted(
        self, gradient: torch.Tensor, moments: Moments, step: int
    ) -> tuple[torch.Tensor, Moments]:
        """Compute the direction without weight decay; arguments as for `direction`."""
        mean = self.beta1 * moments[0] + (1 - self.beta1) * gradient
        square = self.beta2 * moments[1] + (1 - self.beta2) * gradient.square()
        unbiased = mean / (1 - self.beta1 ** (step + 1))
        size = root(square) / (1 - self.beta2 ** (step + 1)) ** 0.5
        return unbiased / (size + self.eps), (mean, square)

    def adapted_gradient(self, direction: torch.Tensor) -> torch.Tensor:
        """Compute the gradient from a first direction without weight decay."""
        return direction * (self.eps / (1 - direction.abs()).clamp_min(0))


@register("adam")
class Adam(Adaptive):
    """Adam, as `torch.optim.Adam` without ``amsgrad``; weight decay is added to the gradient."""

    source = "Kingma and Ba 2015"

    weight_decay: float = parameter(
        0.0, "factor of the parameters that is added to gradients", source="torch", ge=0
    )

    def direction(
        self, parameter: torch.Tensor, gradient: torch.Tensor, moments: Moments, step: int
    ) -> tuple[torch.Tensor, Moments]:
        return self.adapted(gradient + self.weight_decay * parameter, moments, step)

    def first_gradient(self, parameter: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        return self.adapted_gradient(direction) - self.weight_decay * parameter


@register("adamw")
class AdamW(Adaptive):
    """Adam with weight decay beside the adapted gradient, as `torch.optim.AdamW`."""

    source = "Loshchilov and Hutter 2019"

    weight_decay: float = parameter(
        1e-2, "factor of the parameters that is added to directions", source="torch", ge=0
    )

    def direction(
        self, parameter: torch.Tensor, gradient: torch.Tensor, moments: Moments, step: int
    ) -> tuple[torch.Tensor, Moments]:
        adapted, moments = self.adapted(gradient, moments, step)
        return adapted + self.weight_decay * parameter, moments

    def first_gradient(self, parameter: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        return self.adapted_gradient(direction - self.weight_decay * parameter)
