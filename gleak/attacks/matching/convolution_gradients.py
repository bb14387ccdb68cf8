"""Weight gradients of a convolution, by victim."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.grad import conv2d_weight

MANY_PATCHES = 2**16


def weight_gradient(
    layer: nn.Conv2d, inputs: Tensor, output_gradients: Tensor, victims: int
) -> Tensor:
    """Compute each victim's gradient of the layer's weight, differentiable in both arguments.

    The product of output gradients and input patches. torch's unfold and fold visit one value at a
    time on a CPU; here patches are one strided copy, and their adjoint is one strided sum for each
    position in the kernel. On LeNet that saves a third of the cost of an evaluation. Where the
    patches of a single victim fill the cache, torch's own kernel, called for each victim, is two to
    four times as fast on a CPU, and stores no patches. The choice between the two, and hence a
    victim's result, does not depend on the number of victims.

    Args:
        layer: with one group and zero padding.
        inputs: of the layer; Shape (V * N, C, H, W).
        output_gradients: gradients at its outputs; Shape (V * N, O, h, w).
        victims: V.

    Returns:
        Shape (V, O, C, kh, kw).
    """
    patches = (
        layer.weight[0].numel() * output_gradients[0, 0].numel() * len(output_gradients) // victims
    )
    if patches >= MANY_PATCHES and inputs.device.type == "cpu":
        return _one_by_one(layer, inputs, output_gradients, victims)
    height, width = layer.padding if isinstance(layer.padding, tuple) else (0, 0)
    padded = functional.pad(inputs, (width, width, height, height))
    product = _PatchProduct.apply(padded, output_gradients, layer, victims)
    return product.unflatten(2, layer.weight.shape[1:])


def _one_by_one(layer: nn.Conv2d, inputs: Tensor, output_gradients: Tensor, victims: int) -> Tensor:
    """Apply torch's kernel, which sums over all samples of a call, to each victim."""
    samples = len(inputs) // victims
    padding = layer.padding if isinstance(layer.padding, tuple) else (0, 0)
    gradients = [
        conv2d_weight(
            layer_inputs, layer.weight.shape, grad_outputs, layer.stride, padding, layer.dilation
        )
        for layer_inputs, grad_outputs in zip(
            inputs.split(samples), output_gradients.split(samples), strict=True
        )
    ]
    return torch.stack(gradients)


class _PatchProduct(torch.autograd.Function):
    """D^T A of each victim, with the output gradients D and the patches A of the padded input."""

    @staticmethod
    def forward(
        ctx: Any, padded: Tensor, output_gradients: Tensor, layer: nn.Conv2d, victims: int
    ) -> Tensor:
        patches = _patches(padded, layer, output_gradients.shape[2:])
        ctx.layer, ctx.padded, ctx.shape = layer, padded.shape, patches.shape
        patches, output_gradients = patches.flatten(4).flatten(1, 3), output_gradients.flatten(2)
        ctx.save_for_backward(patches, output_gradients)
        return (output_gradients @ patches.mT).unflatten(0, (victims, -1)).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor, Tensor, None, None]:
        patches, output_gradients = ctx.saved_tensors
        samples = len(output_gradients) // len(outputs[0])
        product = outputs[0].contiguous().repeat_interleave(samples, 0)
        output_slopes = (product @ patches).unflatten(2, ctx.shape[4:])
        patch_slopes = (product.mT @ output_gradients).view(ctx.shape)
        return _fold(patch_slopes, ctx.layer, ctx.padded), output_slopes, None, None


def _patches(padded: Tensor, layer: nn.Conv2d, outputs: torch.Size) -> Tensor:
    """Extract the input patch of each output position; Shape (M, C, kh, kw, h, w)."""
    sample, channel, down, right = padded.stride()
    strides = (
        *(sample, channel, layer.dilation[0] * down, layer.dilation[1] * right),
        *(layer.stride[0] * down, layer.stride[1] * right),
    )
    shape = (*padded.shape[:2], *layer.kernel_size, *outputs)
    return padded.as_strided(shape, strides).contiguous()


def _fold(patches: Tensor, layer: nn.Conv2d, shape: torch.Size) -> Tensor:
    """Add every value of the patches to its position in the input; the adjoint of `_patches`."""
    padded = patches.new_zeros(shape)
    for i in range(patches.shape[2]):
        rows = _seen(i, patches.shape[4], layer.stride[0], layer.dilation[0])
        for j in range(patches.shape[3]):
            columns = _seen(j, patches.shape[5], layer.stride[1], layer.dilation[1])
            padded[:, :, rows, columns] += patches[:, :, i, j]
    return padded


def _seen(position: int, outputs: int, stride: int, dilation: int) -> slice:
    """Return the positions along an axis that one kernel position visits."""
    first = position * dilation
    return slice(first, first + (outputs - 1) * stride + 1, stride)
