"""Per-sample gradients, and kernels of torch that can be differentiated twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from gleak.models.sample_losses import penalties, sample_losses


@contextmanager
def differentiable_kernels(network: nn.Module) -> Iterator[None]:
    """Use kernels that have second derivatives, in the block.

    Attention uses its mathematical kernel, the fast paths of `nn.MultiheadAttention` and
    `nn.TransformerEncoderLayer` are disabled, and recurrent layers do not use cuDNN, whose
    derivative cannot be differentiated.

    Args:
        network: network that runs in the block.
    """
    recurrent = any(isinstance(layer, nn.RNNBase) for layer in network.modules())
    fast_path = torch.backends.mha.get_fastpath_enabled()
    cudnn = torch.backends.cudnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cudnn.enabled = cudnn and not recurrent
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        torch.backends.cudnn.enabled = cudnn


def sample_gradients(
    model: nn.Module,
    parameters: dict[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    loss: str,
    at_once: int | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the loss and the gradient of each sample separately.

    Samples are processed one by one if torch cannot vectorise a layer, such as recurrent ones.
    Layers that draw random numbers draw for each sample.

    Args:
        model: network whose parameters are not changed; its samples must not interact.
        parameters: at which the gradients are taken, Shape (*shape).
        inputs: Shape (B, *shape).
        labels: Shape (B).
        loss: see `gleak.models.sample_losses`.
        at_once: number of samples that are vectorised together; None: all.

    Returns:
        Losses, Shape (B), and for each parameter the gradients, Shape (B, *shape).
    """
    of_one = grad_and_value(partial(_sample_loss, model, loss))
    of_all = vmap(of_one, in_dims=(None, 0, 0), randomness="different", chunk_size=at_once)
    with differentiable_kernels(model):
        try:
            gradients, losses = of_all(parameters, inputs, labels)
        except RuntimeError:
            each = [of_one(parameters, *one) for one in zip(inputs, labels, strict=True)]
            gradients = {key: torch.stack([one[key] for one, _ in each]) for key in parameters}
            losses = torch.stack([value for _, value in each])
    return losses, gradients


def _sample_loss(
    model: nn.Module, loss: str, parameters: dict[str, Tensor], sample: Tensor, label: Tensor
) -> Tensor:
    with penalties(model) as added:
        logits = functional_call(model, parameters, (sample[None].clone(),))
    classes = torch.arange(logits.shape[1], device=logits.device)
    targets = (classes == label).to(logits.dtype)[None]
    return sum(added, sample_losses(loss, logits, targets))[0]
