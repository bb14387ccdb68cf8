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
        import torch
        from torch.nn import functional

        from gleak.models.losses import sample_losses

        parameters = dict(model.named_parameters())
        logits = model(inputs)
        targets = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
        loss = sample_losses(self.loss, logits, targets).mean()
        gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
        return {name: value[None] for name, value in zip(parameters, gradients, strict=True)}
