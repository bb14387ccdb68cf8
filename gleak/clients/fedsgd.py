"""Clients that send the gradient of one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.clients.base import ClientSpec
from gleak.registry import register

if TYPE_CHECKING:
    from torch import Tensor, nn


@register("fedsgd")
class FedSGD(ClientSpec):
    """Distributed SGD: one gradient of the mean loss over one batch (CPL section 2.1)."""

    def compute(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """See `ClientSpec.compute`."""
        from gleak.clients.descent import gradients

        found = gradients(model, dict(model.named_parameters()), inputs, labels, self.loss)
        return {name: value[None] for name, value in found.items()}
