"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.optimizers.base import ClientOptimizer, Moments


@register("sgd")
class SGD(ClientOptimizer):
    """Gradient descent, by default plain, as `torch.optim.SGD`.

    The first step sets the momentum buffer to the gradient, without dampening.
    """

    source = "torch.optim.SGD; Sutskever et al. 2013"
    linear: ClassVar[bool] = True

    momentum: float = parameter(0.0, "factor of the momentum buffer", source="torch", ge=0, lt=1)
    nesterov: bool = parameter(False, "true: a step looks ahead by the momentum", source="torch")
    dampening: float = parameter(
        0.0, "share of later gradients that the momentum buffer leaves out", source="torch", le=1
    )
    weight_decay: float = parameter(
        0.0, "factor of the parameters that is added to gradients", source="torch", ge=0
    )

    @model_validator(mode="after")
    def _check_nesterov(self) -> Self:
        if self.nesterov and (not self.momentum or self.dampening):
            raise ValueError("nesterov needs momentum, and no dampening")
        return self

    def initial(self, parameter: torch.Tensor) -> Moments:
        return (torch.zeros_like(parameter),) if self.momentum else ()

    def direction(
        self, parameter: torch.Tensor, gradient: torch.Tensor, moments: Moments, step: int
    ) -> tuple[torch.Tensor, Moments]:
        if self.weight_decay:
            gradient = gradient + self.weight_decay * parameter
        if not self.momentum:
            return gradient, ()
        new = gradient if step == 0 else (1 - self.dampening) * gradient
        buffer = self.momentum * moments[0] + new
        return (gradient + self.momentum * buffer if self.nesterov else buffer), (buffer,)
