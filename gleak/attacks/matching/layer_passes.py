"""Layers in the four passes of `gleak.attacks.matching.tangent_gradients`.

The passes of one batch through one layer are an object, which keeps what a later pass needs. The
first two compute outputs from inputs and, of the loss L, gradients at inputs from those at outputs.
The other two concern S, the derivative of L along a direction of the parameters: they compute
tangents, the derivatives of the outputs along this direction, and the slopes of S at the inputs
from those at the outputs. A tangent of None is zero, and so is a slope.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Optional

from typing_extensions import override

from gleak.attacks.matching.affine_layers import AffineLayer
from gleak.core.lazy import torch

Zero = Optional["torch.Tensor"]


def plus(first: Zero, second: Zero) -> Zero:
    """Add two values of which None is zero."""
    if first is None or second is None:
        return second if first is None else first
    return first + second


class LayerPasses(ABC):
    """Passes of one batch through a layer, called in the order of the methods.

    Attributes:
        outputs: of the layer.
    """

    outputs: torch.Tensor

    @abstractmethod
    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        """Compute the gradients of L at the inputs from those at the outputs."""

    def parameter_gradients(self, victims: int) -> Sequence[torch.Tensor]:
        """Compute the gradients of L by the layer's trained parameters; Shape (V, *shape) each."""
        return ()

    @abstractmethod
    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        """Compute the tangent of the outputs.

        Args:
            tangents: of the inputs.
            directions: of the layer's trained parameters; Shape (V, *shape) each.
        """

    @abstractmethod
    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        """Compute the slopes of S at the inputs from those at the outputs."""


class AffinePasses(LayerPasses):
    """Passes through a layer with trained parameters."""

    def __init__(self, layer: AffineLayer, inputs: torch.Tensor) -> None:
        self.outputs = layer.outputs(inputs)
        self._layer, self._inputs = layer, inputs

    @override
    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        self._grad_outputs = grad_outputs
        return [self._layer.adjoint(grad_outputs, self._inputs.shape)]

    @override
    def parameter_gradients(self, victims: int) -> Sequence[torch.Tensor]:
        self._victims = victims
        self._split_inputs = self._layer.split(self._inputs, victims)
        self._split_gradients = self._layer.split(self._grad_outputs, victims)
        return self._layer.gradients(self._split_inputs, self._split_gradients, victims)

    @override
    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        (tangent,) = tangents
        self._directions = self._layer.stacked(*directions)
        own = self._layer.by_victim(self._directions.outputs(self._split_inputs), self._victims)
        return _added(None if tangent is None else self._layer.linear(tangent), own)

    @override
    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        shape = self._inputs.shape
        own = self._directions.adjoint(self._split_gradients, shape)
        shared = None if slopes is None else self._layer.adjoint(slopes, shape)
        return [_added(shared, self._layer.by_victim(own, self._victims))]


def _added(rows: Zero, own: torch.Tensor) -> torch.Tensor:
    """Add values of each victim, Shape (V, N, ...), to a new tensor of rows; None is zero."""
    if rows is None:
        return own.flatten(0, 1)
    rows.unflatten(0, own.shape[:2]).add_(own)
    return rows


class FunctionPasses(LayerPasses):
    """Passes through any function without trained parameters, by automatic differentiation.

    The gradients D at the outputs enter those at the inputs, J^T D, linearly. The derivative of the
    inner product of J^T D with the tangents t by D is therefore the tangent J t of the outputs, and
    that by the inputs is the curvature's part of their slopes.
    """

    def __init__(self, function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
        self._inputs = [value.detach().requires_grad_() for value in inputs]
        with torch.enable_grad():
            self._attached = function(*self._inputs)
        self.outputs = self._attached.detach()
        self._curvature: Sequence[Zero] = [None] * len(inputs)

    @override
    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        self._grad_outputs = grad_outputs.detach().requires_grad_()
        with torch.enable_grad():
            self._gradients = torch.autograd.grad(
                self._attached,
                self._inputs,
                self._grad_outputs,
                create_graph=True,
                materialize_grads=True,
            )
        return [gradient.detach() for gradient in self._gradients]

    @override
    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        moved = [
            (gradient, tangent)
            for gradient, tangent in zip(self._gradients, tangents, strict=True)
            if tangent is not None
        ]
        if not moved:
            return None
        gradients, given = zip(*moved, strict=True)
        wanted = [self._grad_outputs, *self._inputs]
        outputs, *self._curvature = torch.autograd.grad(
            gradients, wanted, given, retain_graph=True, allow_unused=True
        )
        return outputs

    @override
    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        if slopes is None:
            return self._curvature
        own = torch.autograd.grad(
            self._attached, self._inputs, slopes, retain_graph=True, allow_unused=True
        )
        return [plus(*pair) for pair in zip(own, self._curvature, strict=True)]


class ReluPasses(LayerPasses):
    """Passes through a rectifier, whose derivative is a mask."""

    def __init__(self, inputs: torch.Tensor) -> None:
        self.outputs = inputs.clamp_min(0)
        self._mask = self.outputs.sign()

    @override
    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        return [grad_outputs * self._mask]

    @override
    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        (tangent,) = tangents
        return None if tangent is None else tangent * self._mask

    @override
    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        return [None if slopes is None else slopes * self._mask]


class SumPasses(LayerPasses):
    """Passes through the sum of two values of the same shape."""

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        self.outputs = first + second

    @override
    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        return [grad_outputs, grad_outputs]

    @override
    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        return plus(*tangents)

    @override
    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        return [slopes, slopes]
