"""Derivatives written by hand, for what torch computes slowly or with too much memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gleak.attacks.matching import kernels

CPU_ENTRIES, GPU_ENTRIES = 2**18, 2**28
"""Most values of a residual that are computed at once."""


class PatchProduct(torch.autograd.Function):
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
        slopes = outputs[0].contiguous().repeat_interleave(samples, 0)
        output_slopes = (slopes @ patches).unflatten(2, ctx.shape[4:])
        patch_slopes = (slopes.mT @ output_gradients).view(ctx.shape)
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
    if not kernels.on_cpu(patches):
        settings = (layer.kernel_size, layer.dilation, 0, layer.stride)
        return nn.functional.fold(patches.flatten(4).flatten(1, 3), shape[2:], *settings)
    padded = patches.new_zeros(shape)
    for i in range(patches.shape[2]):
        rows = _seen(i, patches.shape[4], layer.stride[0], layer.dilation[0])
        for j in range(patches.shape[3]):
            columns = _seen(j, patches.shape[5], layer.stride[1], layer.dilation[1])
            padded[:, :, rows, columns].add_(patches[:, :, i, j])
    return padded


def _seen(position: int, outputs: int, stride: int, dilation: int) -> slice:
    """Return the positions along an axis that one kernel position visits."""
    first = position * dilation
    return slice(first, first + (outputs - 1) * stride + 1, stride)


class Products(torch.autograd.Function):
    """Weighted sums over parameters of inner products with targets, and of squared norms."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, targets: Sequence[Tensor], *gradients: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.weights, ctx.targets = weights, targets
        ctx.save_for_backward(*gradients)
        pairs = [
            (gradient.reshape(len(gradient), -1), target.reshape(len(target), -1))
            for gradient, target in zip(gradients, targets, strict=True)
        ]
        inner = torch.stack([(gradient * target).sum(1) for gradient, target in pairs])
        squares = torch.stack([(gradient * gradient).sum(1) for gradient, _ in pairs])
        return (weights * inner).sum(0), (weights * squares).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        inner, squares = ctx.weights * slopes[0], 2 * ctx.weights * slopes[1]
        rows = zip(ctx.saved_tensors, ctx.targets, inner, squares, strict=True)
        return (None, None, *(_combined(*row) for row in rows))


def _combined(gradient: Tensor, target: Tensor, inner: Tensor, square: Tensor) -> Tensor:
    """Compute a sum of gradient and target with factors of each victim."""
    shape = (-1, *[1] * (gradient.ndim - 1))
    return (target * inner.view(shape)).addcmul_(gradient, square.view(shape))


class MicrobatchSum(torch.autograd.Function):
    """Sum of the shares of all micro-batches, which the derivative computes again."""

    @staticmethod
    def forward(
        ctx: Any, method: Any, observed: Mapping[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the gradient of each parameter; Shape (V, *shape)."""
        ctx.method, ctx.observed = method, observed
        ctx.save_for_backward(inputs, targets)
        total = {name: torch.zeros_like(value) for name, value in observed.items()}
        for _, _, gradients in method.shares(observed, inputs, targets):
            for value, gradient in zip(total.values(), gradients, strict=True):
                value.add_(gradient.detach())
        return tuple(total.values())

    @staticmethod
    def backward(ctx: Any, *along: Tensor) -> tuple[None, None, Tensor, Tensor]:
        """Return the derivatives with respect to samples and labels."""
        slopes = [
            torch.autograd.grad(gradients, (samples, labels), along, materialize_grads=True)
            for samples, labels, gradients in ctx.method.shares(ctx.observed, *ctx.saved_tensors)
        ]
        of_samples, of_labels = (torch.cat(parts, 1) for parts in zip(*slopes, strict=True))
        return None, None, of_samples, of_labels


class OuterResidual(torch.autograd.Function):
    """Squared norm of D^T A - G by victim, and the product of this residual E with the inputs A.

    The residual is computed block by block in one buffer. The product E A^T has Shape (V, out, N).
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, output_gradients: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        victims, rows, columns = target.shape
        entries = CPU_ENTRIES if kernels.on_cpu(target) else GPU_ENTRIES
        group = max(1, min(victims, entries // (rows * columns)))
        height = max(1, min(rows, entries // columns))
        buffer = target.new_empty(group * height * columns)
        total = target.new_zeros(victims)
        output_slopes, input_slopes = torch.zeros_like(output_gradients), torch.zeros_like(inputs)
        for start, top in product(range(0, victims, group), range(0, rows, height)):
            some, band = slice(start, start + group), slice(top, top + height)
            expected, grad_outputs = target[some, band], output_gradients[some, :, band]
            residual = buffer[: expected.numel()].view(expected.shape)
            torch.bmm(grad_outputs.mT, inputs[some], out=residual)
            residual -= expected
            total[some].add_(_squares(residual.flatten(1)))
            output_slopes[some, :, band] = inputs[some] @ residual.mT
            input_slopes[some].add_(grad_outputs @ residual)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs, output_gradients, target, input_slopes, output_slopes)
        return total, output_slopes.mT.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor | None) -> tuple[Tensor, Tensor, None]:
        inputs, output_gradients, target, input_slopes, output_slopes = ctx.saved_tensors
        of_total, of_along = outputs
        weight = 0 if of_total is None else 2 * of_total[:, None, None]
        input_slopes, output_slopes = weight * input_slopes, weight * output_slopes
        if of_along is not None:
            moved = output_gradients @ of_along
            input_slopes += (moved + moved.mT) @ inputs - of_along.mT @ target
            output_slopes += (inputs @ inputs.mT) @ of_along.mT
        return input_slopes, output_slopes, None


class FactoredErrors(torch.autograd.Function):
    """Squared norm of the error of D^T A by row, and the error's products with the inputs A.

    The error is linear in D^T A where ``follows`` is one, or everywhere, and constant elsewhere.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, output_gradients: Tensor, error: Tensor, follows: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        along = (inputs @ error.mT).mT.contiguous()
        ctx.follows = follows
        ctx.save_for_backward(inputs, output_gradients, error, along)
        return torch.linalg.vector_norm(error, dim=2).square(), along

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor, Tensor, None, None]:
        inputs, output_gradients, error, along = ctx.saved_tensors
        of_rows, of_along = 2 * outputs[0], outputs[1]
        input_slopes = (of_rows[:, None] * output_gradients + of_along.mT) @ error
        output_slopes = (of_rows[..., None] * along).mT
        if ctx.follows is None:
            input_slopes += (output_gradients @ of_along) @ inputs
            output_slopes = output_slopes + (inputs @ inputs.mT) @ of_along.mT
        else:
            moved = (of_along @ inputs).mul_(ctx.follows)
            input_slopes += output_gradients @ moved
            output_slopes = output_slopes + inputs @ moved.mT
        return input_slopes, output_slopes, None, None


def _squares(values: Tensor) -> Tensor:
    """Compute the sum of squares of each row, without a copy; Shape (V, M) to (V).

    A product of long vectors on a GPU is slow, and sums of many values in sequence are inaccurate.
    """
    if not kernels.on_cpu(values):
        return torch.linalg.vector_norm(values, dim=1).square()
    flat = values[:, None]
    return (flat @ flat.mT).flatten()


class TangentGradient(torch.autograd.Function):
    """Gradients of the victims' mean losses, as functions of their samples and soft labels."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, targets: Tensor, method: Any) -> tuple[Tensor, ...]:
        ctx.method, ctx.passes = method, method.passes(inputs, targets)
        gradients = ctx.passes.gradients(*inputs.shape[:2])
        return tuple(gradients[name] for name in method.trained)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, Tensor | None, None]:
        directions = dict(zip(ctx.method.trained, slopes, strict=True))
        victims = len(slopes[0])
        inputs, targets = (
            None if rows is None else rows.unflatten(0, (victims, -1))
            for rows in ctx.passes.slopes(directions)
        )
        return inputs, targets, None
