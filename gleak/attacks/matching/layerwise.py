"""Gradients of the dummy samples of many victims, split layer by layer from one backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from types import MappingProxyType
from typing import Any

from gleak.attacks.matching import kernels
from gleak.attacks.matching.gradients import ClientTraining, SamplewiseGradients
from gleak.attacks.matching.pieces import FormedPiece, OuterPiece, Piece, derivatives
from gleak.core.lazy import torch
from gleak.models.differentiation import penalties

OutputFunction = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Function from a layer's inputs and outputs to its outputs at each victim's own parameters."""
Replacements = Mapping[str, OutputFunction]
"""By layer, the function that replaces its outputs."""
NO_REPLACEMENTS: Replacements = MappingProxyType({})
MANY_PATCHES = 2**16
"""Values of the patches of one victim from which torch's own kernel is faster on a CPU."""


class UnsplittableError(Exception):
    """The gradients of a network cannot be split by victim layer by layer."""


class LayerwiseGradients(SamplewiseGradients):
    """Weight gradients from each layer's inputs A and the loss's gradients D at its outputs.

    The samples of all victims share one forward and one backward pass; the split by victim is a
    batched product of A and D. It is correct for networks whose trained layers are each used once,
    through their forward methods alone, and whose samples do not interact.

    Raises:
        UnsplittableError: a trained parameter does not belong to a layer that can be split.
    """

    def __init__(self, training: ClientTraining) -> None:
        self.model, self.sample_losses = training.model, training.sample_losses
        self.several_victims = training.several_victims
        self.layers = _trained_layers(training)

    def __call__(
        self, inputs: torch.Tensor, targets: torch.Tensor, observed: dict[str, torch.Tensor]
    ) -> list[Piece]:
        layer_inputs, slopes = self.split(inputs, targets)
        pieces: list[Piece] = []
        for name, layer in self.layers.items():
            pieces += _pieces(name, layer, layer_inputs[name], slopes[name], len(inputs), observed)
        return pieces

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute logits of all samples in one batch, since they do not interact."""
        logits: torch.Tensor = self.model(inputs.flatten(0, 1).clone())
        return logits.unflatten(0, inputs.shape[:2])

    def split(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        replacements: Replacements = NO_REPLACEMENTS,
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Compute every trained layer's inputs, and the mean losses' gradients at its outputs.

        From samples, Shape (V, N, *sample shape), and soft labels; by layer, Shape (V * N, ...).

        Raises:
            UnsplittableError: a layer is used twice or never, or its output is overwritten.
        """
        rows = inputs.flatten(0, 1)
        rows = rows if rows.requires_grad else rows.detach().requires_grad_()
        layer_inputs: dict[str, torch.Tensor] = {}
        layer_outputs: dict[str, torch.Tensor] = {}
        versions: dict[str, int] = {}

        def keep(name: str, _: Any, arguments: tuple[Any, ...], output: torch.Tensor) -> None:
            if name in layer_outputs or not arguments:
                raise UnsplittableError(name)
            layer_inputs[name], layer_outputs[name] = arguments[0], output
            versions[name] = output._version

        def replace(
            shift: OutputFunction, _: Any, given: Any, output: torch.Tensor
        ) -> torch.Tensor:
            return shift(given[0], output)

        with penalties(self.model) as added, ExitStack() as stack, torch.enable_grad():
            if self.several_victims:
                stack.enter_context(kernels.padded_rows(self.model, rows))
            for name, shift in replacements.items():
                hook = self.layers[name].register_forward_hook(partial(replace, shift))
                stack.enter_context(hook)
            for name, layer in self.layers.items():
                stack.enter_context(layer.register_forward_hook(partial(keep, name)))
            logits = self.model(rows.clone())
        overwritten = [n for n, output in layer_outputs.items() if output._version != versions[n]]
        if overwritten or len(layer_outputs) < len(self.layers):
            raise UnsplittableError(*overwritten)
        losses = sum(added, self.sample_losses(logits, targets.flatten(0, 1)))
        output_gradients = torch.autograd.grad(
            losses.sum() / inputs.shape[1],
            list(layer_outputs.values()),
            create_graph=torch.is_grad_enabled(),
        )
        return layer_inputs, dict(zip(layer_outputs, output_gradients, strict=True))


def by_victim(values: torch.Tensor, victims: int) -> torch.Tensor:
    """Group the rows of values by victim; Shape (V, N * positions, features)."""
    return values.reshape(victims, -1, values.shape[-1])


def _pieces(
    name: str,
    layer: Any,
    layer_inputs: torch.Tensor,
    grad_outputs: torch.Tensor,
    victims: int,
    observed: dict[str, torch.Tensor],
) -> Iterator[Piece]:
    weight, bias = f"{name}.weight", f"{name}.bias"
    if isinstance(layer, torch.nn.Linear):
        rows = by_victim(grad_outputs, victims)
        yield OuterPiece(weight, rows, by_victim(layer_inputs, victims), observed[weight])
        if layer.bias is not None:
            yield FormedPiece(bias, rows.sum(1), observed[bias])
        return
    if isinstance(layer, torch.nn.Conv2d):
        gradient = weight_gradient(layer, layer_inputs, grad_outputs, victims)
    else:
        gradient = channel_sums(grad_outputs * normalised(layer, layer_inputs), victims)
    yield FormedPiece(weight, gradient, observed[weight])
    if layer.bias is not None:
        yield FormedPiece(bias, channel_sums(grad_outputs, victims), observed[bias])


def weight_gradient(
    layer: torch.nn.Conv2d, inputs: torch.Tensor, output_gradients: torch.Tensor, victims: int
) -> torch.Tensor:
    """Compute each victim's gradient of the layer's weight, differentiable in both arguments.

    The product of output gradients and input patches. torch's unfold and fold visit one value at a
    time on a CPU; here patches are one strided copy, and their adjoint is one strided sum for each
    position in the kernel, which saves a third of an evaluation of LeNet. Where the patches of one
    victim fill the cache, torch's own kernel, called for each victim, is two to four times as fast
    on a CPU. The choice, and hence a victim's result, does not depend on the number of victims.

    From inputs, Shape (V * N, C, H, W), and gradients at the outputs, Shape (V * N, O, h, w), of a
    layer with one group and zero padding; Shape (V, O, C, kh, kw).
    """
    samples, positions = len(inputs) // victims, output_gradients[0, 0].numel()
    padding = layer.padding if isinstance(layer.padding, tuple) else (0, 0)
    many = layer.weight[0].numel() * positions * samples >= MANY_PATCHES
    if many and kernels.on_cpu(inputs):
        settings = (layer.stride, padding, layer.dilation)
        pairs = zip(inputs.split(samples), output_gradients.split(samples), strict=True)
        gradients = [
            torch.nn.grad.conv2d_weight(own, layer.weight.shape, slopes, *settings)  # type: ignore[attr-defined]
            for own, slopes in pairs
        ]
        return torch.stack(gradients)
    height, width = padding
    padded = torch.nn.functional.pad(inputs, (width, width, height, height))
    product = derivatives().PatchProduct.apply(padded, output_gradients, layer, victims)
    formed: torch.Tensor = product.unflatten(2, layer.weight.shape[1:])
    return formed


def normalised(layer: Any, inputs: torch.Tensor) -> torch.Tensor:
    """Normalise the inputs of batch norm by its running statistics; Shape (M, C, H, W)."""
    mean, deviation = layer.running_mean, (layer.running_var + layer.eps).sqrt()
    return (inputs - mean[:, None, None]) / deviation[:, None, None]


def channel_sums(values: torch.Tensor, victims: int) -> torch.Tensor:
    """Sum over positions and a victim's samples; Shape (V * N, C, H, W) to (V, C)."""
    return values.sum((2, 3)).unflatten(0, (victims, -1)).sum(1)


def _trained_layers(training: ClientTraining) -> dict[str, torch.nn.Module]:
    """Return the layers of the trained parameters, by name."""
    layers: dict[str, torch.nn.Module] = {}
    for name, layer in training.model.named_modules():
        parameters = {f"{name}.{key}" for key, _ in layer.named_parameters(recurse=False)}
        if not parameters & training.trained:
            continue
        if not _splits_by_victim(layer) or parameters - training.trained:
            raise UnsplittableError(name)
        layers[name] = layer
    if left := training.trained - {
        f"{name}.{key}" for name in layers for key in ("weight", "bias")
    }:
        raise UnsplittableError(*left)
    return layers


def _splits_by_victim(layer: torch.nn.Module) -> bool:
    if type(layer) is torch.nn.Conv2d:
        plain = layer.groups == 1 and layer.padding_mode == "zeros"
        return plain and not isinstance(layer.padding, str)
    if type(layer) is torch.nn.BatchNorm2d:
        return layer.running_mean is not None
    return type(layer) is torch.nn.Linear
