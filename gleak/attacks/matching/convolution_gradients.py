"""Weight gradients of a convolution, by victim."""

from __future__ import annotations

from gleak.core.lazy import torch

MANY_PATCHES = 2**16


def weight_gradient(
    layer: torch.nn.Conv2d, inputs: torch.Tensor, output_gradients: torch.Tensor, victims: int
) -> torch.Tensor:
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
    from gleak.attacks.matching.functions import PatchProduct

    patches = (
        layer.weight[0].numel() * output_gradients[0, 0].numel() * len(output_gradients) // victims
    )
    if patches >= MANY_PATCHES and inputs.device.type == "cpu":
        return _one_by_one(layer, inputs, output_gradients, victims)
    height, width = layer.padding if isinstance(layer.padding, tuple) else (0, 0)
    padded = torch.nn.functional.pad(inputs, (width, width, height, height))
    product = PatchProduct.apply(padded, output_gradients, layer, victims)
    return product.unflatten(2, layer.weight.shape[1:])


def _one_by_one(
    layer: torch.nn.Conv2d, inputs: torch.Tensor, output_gradients: torch.Tensor, victims: int
) -> torch.Tensor:
    """Apply torch's kernel, which sums over all samples of a call, to each victim."""
    samples = len(inputs) // victims
    padding = layer.padding if isinstance(layer.padding, tuple) else (0, 0)
    gradients = [
        torch.nn.grad.conv2d_weight(  # type: ignore[attr-defined]
            layer_inputs, layer.weight.shape, grad_outputs, layer.stride, padding, layer.dilation
        )
        for layer_inputs, grad_outputs in zip(
            inputs.split(samples), output_gradients.split(samples), strict=True
        )
    ]
    return torch.stack(gradients)
