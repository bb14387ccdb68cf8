"""Distributed SGD: clients that send the gradient of one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.clients.base import ClientSpec
from gleak.core.lazy import torch
from gleak.core.registry import register

if TYPE_CHECKING:
    from gleak.local_training.base import LocalGradient


@register("fedsgd")
class FedSGD(ClientSpec):
    """Distributed SGD: one gradient of the mean loss over one batch (CPL section 2.1)."""

    @override
    def compute(
        self,
        model: torch.nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        gradient: LocalGradient | None = None,
    ) -> dict[str, torch.Tensor]:
        from gleak.local_training.gradient_descent import gradients
        from gleak.models.parameters import trained_parameters

        trained: dict[str, torch.Tensor] = {**trained_parameters(model)}
        update = gradients(model, trained, inputs, labels, self.loss, gradient)
        return {name: value[None] for name, value in update.items()}
