"""Gradients of many victims' dummy inputs at once, all at the broadcast parameters.

`LayerwiseGradients` runs the samples of all victims through the network as one batch and splits
each layer's weight gradient by victim; `VmappedGradients` does it for any network.
`choose_gradients` takes the first where it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from gleak.matching.convolution import weight_gradient
from gleak.matching.distances.base import Piece
from gleak.matching.pieces import FormedPiece, OuterPiece
from gleak.models.losses import sample_losses
from gleak.models.penalties import penalties

PROBED = 3
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
Gradients = Callable[[Tensor, Tensor, dict[str, Tensor]], list[Piece]]
"""From inputs (V, N, *shape), targets (V, N, classes) and the observed gradients to pieces."""
Moved = Callable[[Tensor, Tensor], Tensor]
"""From a layer's inputs and outputs to what it gives with parameters of each victim's own."""
AT_REST: Mapping[str, Moved] = MappingProxyType({})


def choose_gradients(model: nn.Module, loss: str, input_shape: tuple[int, ...]) -> Gradients:
    """The fastest way to the gradients of this model's clients."""
    layerwise = LayerwiseGradients(model, loss)
    return layerwise if layerwise.serves(input_shape) else VmappedGradients(model, loss)


class TangledLayersError(Exception):
    """A layer's input and output in one pass do not stand for its part in the loss."""


def _splits_by_victim(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d) and (layer.groups > 1 or layer.padding_mode != "zeros"):
        return False
    return type(layer) in LAYERS and not isinstance(getattr(layer, "padding", 0), str)


def _mixes_samples(layer: nn.Module) -> bool:
    """Whether an output depends on the other samples: batch norm by the batch's own statistics."""
    return isinstance(layer, BATCH_NORMS) and (layer.training or layer.running_mean is None)


def _trained_layers(model: nn.Module) -> dict[str, nn.Module]:
    return {
        name: layer
        for name, layer in model.named_modules()
        if any(True for _ in layer.parameters(recurse=False))
    }


class VmappedGradients:
    """Gradients of each victim's mean loss, the network's passes vectorised over victims.

    Every victim has parameters of its own, so that the derivative is taken outside `vmap`. With
    `vmap(grad(...))` inside, second derivatives through layer and instance norm would be wrong:
    torch takes their statistics for constants there.
    """

    def __init__(self, model: nn.Module, loss: str) -> None:
        self.parameters = {name: value.detach() for name, value in model.named_parameters()}

        def client_loss(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
            with penalties(model) as added:
                logits = functional_call(model, parameters, (inputs,))
            return sum(added, sample_losses(loss, logits, targets)).mean()

        self._losses = vmap(client_loss)

    def __call__(self, inputs: Tensor, targets: Tensor, observed: dict[str, Tensor]) -> list[Piece]:
        """One formed piece per parameter; see `Gradients`."""
        gradients = self.gradients_at(self.broadcast(len(inputs)), inputs, targets)
        return [FormedPiece(name, gradients[name], observed[name]) for name in gradients]

    def broadcast(self, victims: int) -> dict[str, Tensor]:
        """The parameters that each victim begins with, not copied; Shape (V, *shape)."""
        return {
            name: value.expand(victims, *value.shape).requires_grad_()
            for name, value in self.parameters.items()
        }

    def gradients_at(
        self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> dict[str, Tensor]:
        """Gradient of each victim at its own parameters, differentiable in all arguments.

        Args:
            parameters: Shape (V, *shape) each; they require a gradient.
            inputs: Shape (V, N, *sample shape).
            targets: Shape (V, N, classes).
        """
        total = self._losses(parameters, inputs, targets).sum()
        found = torch.autograd.grad(
            total, list(parameters.values()), create_graph=True, materialize_grads=True
        )
        return dict(zip(parameters, found, strict=True))


class LayerwiseGradients:
    """Weight gradients from each layer's inputs A and the loss's gradients D at its outputs.

    The samples of all victims share one forward and one backward pass, whatever their number; the
    split by victim is a batched product of A and D.
    """

    def __init__(self, model: nn.Module, loss: str) -> None:
        self.model, self.loss = model, loss
        self.layers = _trained_layers(model)

    def serves(self, input_shape: tuple[int, ...]) -> bool:
        """Whether every trained layer is one of `LAYERS` and takes part once, samples in front.

        Refused as well: parameters that layers share or that no layer owns, and batch norm that
        does not go by running statistics.
        """
        if not all(map(_splits_by_victim, self.layers.values())):
            return False
        if any(map(_mixes_samples, self.model.modules())):
            return False
        owned = {f"{n}.{p}" for n, at in self.layers.items() for p, _ in at.named_parameters()}
        probe = next(self.model.parameters()).new_zeros(PROBED, *input_shape)
        try:
            taken, given, _ = self.forward(probe)
        except TangledLayersError:
            return False
        batched = all(len(value) == PROBED for value in [*taken.values(), *given.values()])
        return batched and owned == {name for name, _ in self.model.named_parameters()}

    def __call__(self, inputs: Tensor, targets: Tensor, observed: dict[str, Tensor]) -> list[Piece]:
        """Pieces of every parameter; see `Gradients`."""
        taken, backs = self.split(inputs, targets)
        pieces: list[Piece] = []
        for name, layer in self.layers.items():
            split = LAYERS[type(layer)]
            pieces += split(name, layer, taken[name], backs[name], len(inputs), observed)
        return pieces

    def split(
        self, inputs: Tensor, targets: Tensor, moved: Mapping[str, Moved] = AT_REST
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Inputs of every trained layer, and gradients of the victims' mean losses at its outputs.

        Args:
            inputs: Shape (V, N, *sample shape).
            targets: Shape (V, N, classes).
            moved: see `forward`.

        Returns:
            By layer, Shape (V * N, ...) each.
        """
        with penalties(self.model) as added:
            taken, given, logits = self.forward(inputs.flatten(0, 1), moved)
        losses = sum(added, sample_losses(self.loss, logits, targets.flatten(0, 1)))
        backs = torch.autograd.grad(
            losses.sum() / inputs.shape[1],
            list(given.values()),
            create_graph=torch.is_grad_enabled(),
        )
        return taken, dict(zip(given, backs, strict=True))

    def forward(
        self, inputs: Tensor, moved: Mapping[str, Moved] = AT_REST
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
        """Inputs and outputs of every trained layer, and the logits.

        Args:
            inputs: Shape (M, *sample shape).
            moved: what some layers give in place of their outputs.

        Raises:
            TangledLayersError: a layer is used twice or never, or its output is overwritten.
        """
        inputs = inputs if inputs.requires_grad else inputs.detach().requires_grad_()
        taken: dict[str, Tensor] = {}
        given: dict[str, Tensor] = {}
        versions: dict[str, int] = {}

        def keeper(name: str) -> Callable[..., None]:
            def keep(_: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
                if name in given or not arguments:
                    raise TangledLayersError(name)
                taken[name], given[name] = arguments[0], output
                versions[name] = output._version

            return keep

        with ExitStack() as stack, torch.enable_grad():
            for name, shift in moved.items():
                stack.enter_context(self.layers[name].register_forward_hook(_replacing(shift)))
            for name, layer in self.layers.items():
                stack.enter_context(layer.register_forward_hook(keeper(name)))
            logits = self.model(inputs)
        overwritten = [name for name in given if given[name]._version != versions[name]]
        if overwritten or len(given) < len(self.layers):
            raise TangledLayersError(*overwritten)
        return taken, given, logits


def _replacing(shift: Moved) -> Callable[..., Tensor]:
    def replaced(_: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return shift(arguments[0], output)

    return replaced


def by_victim(values: Tensor, victims: int) -> Tensor:
    """Samples of a victim side by side; Shape (V, N * positions, features)."""
    return values.reshape(victims, -1, values.shape[-1])


def _dense(
    name: str, layer: Any, taken: Tensor, back: Tensor, victims: int, observed: dict[str, Tensor]
) -> Sequence[Piece]:
    backs = by_victim(back, victims)
    weight, bias = f"{name}.weight", f"{name}.bias"
    pieces: list[Piece] = [OuterPiece(weight, backs, by_victim(taken, victims), observed[weight])]
    if layer.bias is not None:
        pieces.append(FormedPiece(bias, backs.sum(1), observed[bias]))
    return pieces


def _convolution(
    name: str, layer: Any, taken: Tensor, back: Tensor, victims: int, observed: dict[str, Tensor]
) -> Sequence[Piece]:
    weight = f"{name}.weight"
    gradient = weight_gradient(layer, taken, back, victims)
    bias = _channel_bias(name, layer, back, victims, observed)
    return [FormedPiece(weight, gradient, observed[weight]), *bias]


def _normalisation(
    name: str, layer: Any, taken: Tensor, back: Tensor, victims: int, observed: dict[str, Tensor]
) -> Sequence[Piece]:
    weight = f"{name}.weight"
    gradient = channel_sums(back * normalised(layer, taken), victims)
    bias = _channel_bias(name, layer, back, victims, observed)
    return [FormedPiece(weight, gradient, observed[weight]), *bias]


def normalised(layer: Any, inputs: Tensor) -> Tensor:
    """What batch norm scales and shifts, by its running statistics; Shape (M, C, H, W)."""
    mean, deviation = layer.running_mean, (layer.running_var + layer.eps).sqrt()
    return (inputs - mean[:, None, None]) / deviation[:, None, None]


def _channel_bias(
    name: str, layer: Any, back: Tensor, victims: int, observed: dict[str, Tensor]
) -> Sequence[Piece]:
    if layer.bias is None:
        return []
    bias = f"{name}.bias"
    return [FormedPiece(bias, channel_sums(back, victims), observed[bias])]


def channel_sums(values: Tensor, victims: int) -> Tensor:
    """Sums over positions and a victim's samples; Shape (V * N, C, H, W) to (V, C)."""
    return values.sum((2, 3)).unflatten(0, (victims, -1)).sum(1)


LAYERS: dict[type[nn.Module], Callable[..., Sequence[Piece]]] = {
    nn.Linear: _dense,
    nn.Conv2d: _convolution,
    nn.BatchNorm2d: _normalisation,
}
