"""Gradients of a client's local training, differentiated through all of its steps.

The mean direction of the local steps, each taken at the parameters that the steps before it lead
to (InvertGrad, section 6), of any optimiser. Of plain gradient descent the weights of a
convolution, which are few, are materialised for each victim. The many of a dense layer change by a
sum of outer products of few rows: its outputs are those at the broadcast weights, plus a term
computed from these rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from gleak.attacks.matching.gradients import ClientTraining, GeneralGradients, Gradients
from gleak.attacks.matching.layerwise import (
    LayerwiseGradients,
    OutputFunction,
    by_victim,
    channel_sums,
    normalised,
    weight_gradient,
)
from gleak.attacks.matching.pieces import FormedPiece, OuterPiece, Piece
from gleak.clients.local_training import LocalTraining
from gleak.core.lazy import torch


class Unrolled(Gradients):
    """Mean direction of T local steps, differentiated through all of them.

    Steps take the samples in order, one mini-batch at a time, and start over after the last sample;
    the client's own order is unknown to an attacker. Clients of a sum take their steps in parallel.
    """

    _one_step: Gradients

    def __init__(self, training: ClientTraining, one_step: Gradients) -> None:
        self.protocol, self._one_step = training.protocol, one_step

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        return self._one_step.logits(inputs)

    def batches(
        self, inputs: torch.Tensor, targets: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Return the samples of every client for each step; Shape (clients, mini_batch, ...)."""
        samples = inputs.shape[1]
        size = min(self.protocol.mini_batch, samples)
        used = samples - samples % size if self.protocol.drop_last else samples
        starts = range(0, used, size)
        for step in range(self.protocol.local_steps):
            first = starts[step % len(starts)]
            batch = slice(first, min(first + size, used))
            yield inputs[:, batch], targets[:, batch]


class GeneralUnrolled(Unrolled):
    """Unrolled training with separate parameters of every victim, for networks of any kind."""

    _one_step: GeneralGradients

    def __call__(
        self, inputs: torch.Tensor, targets: torch.Tensor, observed: dict[str, torch.Tensor]
    ) -> list[Piece]:
        mean = self.mean_gradients(inputs, targets)
        return [FormedPiece(name, mean[name], observed[name]) for name in mean]

    def mean_gradients(
        self, inputs: torch.Tensor, targets: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Compute the mean direction of the steps; for each parameter, Shape (V, *shape).

        That of linear training is converted as the observed one is (`without_decay`).
        The steps' directions are summed: a difference of weights would be rounded to the precision
        of the weights, which is coarse at a small learning rate.
        """
        members = self.protocol.clients or 1
        inputs, targets = (
            value.unflatten(1, (members, -1)).flatten(0, 1) for value in (inputs, targets)
        )
        broadcast = self._one_step.broadcast(len(inputs))
        training = LocalTraining.of(self.protocol, broadcast, clients=1)
        for batch in self.batches(inputs, targets):
            training = training.after(self._one_step.gradients_at(training.parameters, *batch))
        mean, protocol = training.mean_direction, self.protocol
        if protocol.is_linear and not protocol.is_plain:
            mean = {
                name: (value - protocol.decay * broadcast[name]) / protocol.gradient_response
                for name, value in mean.items()
            }
        return {name: value.unflatten(0, (-1, members)).mean(1) for name, value in mean.items()}


class LayerwiseUnrolled(Unrolled):
    """Unrolled training at the broadcast parameters, with steps added to the layers' outputs."""

    _one_step: LayerwiseGradients

    def __call__(
        self, inputs: torch.Tensor, targets: torch.Tensor, observed: dict[str, torch.Tensor]
    ) -> list[Piece]:
        kinds: dict[type[torch.nn.Module], type[LayerSteps]] = {
            torch.nn.Linear: DenseSteps,
            torch.nn.Conv2d: ConvolutionSteps,
            torch.nn.BatchNorm2d: NormalisationSteps,
        }
        layers = {
            name: kinds[type(layer)](name, layer, len(inputs), self.protocol.local_lr)
            for name, layer in self._one_step.layers.items()
        }
        replacements: dict[str, OutputFunction] = {}
        for batch in self.batches(inputs, targets):
            layer_inputs, output_gradients = self._one_step.split(*batch, replacements)
            for name, layer in layers.items():
                layer.add_step(layer_inputs[name], output_gradients[name])
            replacements = {name: layer.outputs_after for name, layer in layers.items()}
        steps = self.protocol.local_steps
        return [piece for layer in layers.values() for piece in layer.pieces(observed, steps)]


class LayerSteps(ABC):
    """Gradients of one layer in all local steps so far, of V victims, at a learning rate."""

    def __init__(self, name: str, layer: Any, victims: int, rate: float) -> None:
        self.name, self.layer = name, layer
        self.victims, self.rate = victims, rate

    @abstractmethod
    def add_step(self, layer_inputs: torch.Tensor, grad_outputs: torch.Tensor) -> None:
        """Add a step, from the layer's inputs and the gradients at its outputs, (V * N, ...)."""

    @abstractmethod
    def outputs_after(self, inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Compute the layer's outputs after the steps from those before; see `OutputFunction`."""

    @abstractmethod
    def pieces(self, observed: dict[str, torch.Tensor], steps: int) -> list[Piece]:
        """Return the mean gradients over the steps, paired with the observed ones."""

    def _with_bias(
        self, weight: Piece, total: torch.Tensor, observed: dict[str, torch.Tensor], steps: int
    ) -> list[Piece]:
        if self.layer.bias is None:
            return [weight]
        bias = f"{self.name}.bias"
        return [weight, FormedPiece(bias, total / steps, observed[bias])]


class DenseSteps(LayerSteps):
    """Rows A and D of all steps of a dense layer; the sum of its gradients is D^T A."""

    def __init__(self, name: str, layer: torch.nn.Linear, victims: int, rate: float) -> None:
        super().__init__(name, layer, victims, rate)
        self._inputs: list[torch.Tensor] = []
        self._grad_outputs: list[torch.Tensor] = []

    def add_step(self, layer_inputs: torch.Tensor, grad_outputs: torch.Tensor) -> None:
        self._inputs.append(by_victim(layer_inputs, self.victims))
        self._grad_outputs.append(by_victim(grad_outputs, self.victims))

    def outputs_after(self, inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        rows, (layer_inputs, output_gradients) = by_victim(inputs, self.victims), self._rows()
        change = (rows @ layer_inputs.mT) @ output_gradients
        if self.layer.bias is not None:
            change = change + output_gradients.sum(1, keepdim=True)
        return outputs - self.rate * change.view_as(outputs)

    def pieces(self, observed: dict[str, torch.Tensor], steps: int) -> list[Piece]:
        layer_inputs, output_gradients = self._rows()
        weight = f"{self.name}.weight"
        outer = OuterPiece(weight, output_gradients / steps, layer_inputs, observed[weight])
        return self._with_bias(outer, output_gradients.sum(1), observed, steps)

    def _rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat(self._inputs, 1), torch.cat(self._grad_outputs, 1)


class SummedSteps(LayerSteps):
    """Base class of layers with few weights, whose gradients are materialised and summed."""

    def __init__(self, name: str, layer: Any, victims: int, rate: float) -> None:
        super().__init__(name, layer, victims, rate)
        self.weight: torch.Tensor = layer.weight.new_zeros(victims, *layer.weight.shape)
        self.bias: torch.Tensor = layer.weight.new_zeros(victims, layer.weight.shape[0])

    def add_step(self, layer_inputs: torch.Tensor, grad_outputs: torch.Tensor) -> None:
        self.weight = self.weight + self.weight_gradient(layer_inputs, grad_outputs)
        if self.layer.bias is not None:
            self.bias = self.bias + channel_sums(grad_outputs, self.victims)

    @abstractmethod
    def weight_gradient(self, inputs: torch.Tensor, grad_outputs: torch.Tensor) -> torch.Tensor:
        """Compute each victim's gradient, arguments as in `add_step`; Shape (V, *weight shape)."""

    def pieces(self, observed: dict[str, torch.Tensor], steps: int) -> list[Piece]:
        weight = f"{self.name}.weight"
        formed = FormedPiece(weight, self.weight / steps, observed[weight])
        return self._with_bias(formed, self.bias, observed, steps)


class ConvolutionSteps(SummedSteps):
    """Steps of a convolution; those of several victims are one convolution with as many groups."""

    def weight_gradient(self, inputs: torch.Tensor, grad_outputs: torch.Tensor) -> torch.Tensor:
        return weight_gradient(self.layer, inputs, grad_outputs, self.victims)

    def outputs_after(self, inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        layer, victims = self.layer, self.victims
        weights = (layer.weight - self.rate * self.weight).flatten(0, 1)
        biases = None if layer.bias is None else (layer.bias - self.rate * self.bias).flatten()
        stacked = inputs.unflatten(0, (victims, -1)).transpose(0, 1).flatten(1, 2)
        settings = (layer.stride, layer.padding, layer.dilation, victims)
        beside = torch.nn.functional.conv2d(stacked, weights, biases, *settings)
        return beside.unflatten(1, (victims, -1)).transpose(0, 1).flatten(0, 1)


class NormalisationSteps(SummedSteps):
    """Steps of batch norm by running statistics: scale and shift of each channel."""

    def weight_gradient(self, inputs: torch.Tensor, grad_outputs: torch.Tensor) -> torch.Tensor:
        return channel_sums(grad_outputs * normalised(self.layer, inputs), self.victims)

    def outputs_after(self, inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        scale, shift = (value[:, None, :, None, None] for value in (self.weight, self.bias))
        values = normalised(self.layer, inputs).unflatten(0, (self.victims, -1))
        return outputs - self.rate * (scale * values + shift).flatten(0, 1)
