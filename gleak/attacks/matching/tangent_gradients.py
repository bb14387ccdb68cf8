"""Gradients of the dummy samples of all victims in one batch, differentiated by a pass of tangents.

A search needs the derivative of a function of the gradient g of the loss L by the parameters. With
v, the function's derivative by g, this is the derivative of S = <v, g> by the samples, and S is the
derivative of L along the direction v of the parameters. Two passes compute L and g; a pass of
tangents along v computes S, and a pass back its slopes at the samples (Pearlmutter 1994, "Fast
exact multiplication by the Hessian", with a derivative by samples in place of one by parameters).
No graph of the gradient's computation is built or differentiated.

The passes of one batch through one layer are an object (`LayerPasses`), which keeps what a later
pass needs. A tangent of None is zero, and so is a slope.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from gleak.attacks.matching import kernels
from gleak.attacks.matching.affine_layers import AffineLayer, affine_layer
from gleak.attacks.matching.gradients import ClientTraining, Parameters, SamplewiseGradients
from gleak.attacks.matching.layerwise import UnsplittableError
from gleak.attacks.matching.pieces import FormedPiece, Piece, derivatives
from gleak.core.lazy import torch
from gleak.models.differentiation import penalised_layers
from gleak.models.parameters import independent_copy

GIVEN = 2
"""Number of values given to the steps: samples and soft labels."""
Zero = Optional["torch.Tensor"]


def plus(first: Zero, second: Zero) -> Zero:
    if first is None or second is None:
        return second if first is None else first
    return first + second


class LayerPasses(ABC):
    """Passes of one batch through a layer, called in the order of the methods.

    The first two compute `outputs` from inputs and, of the loss L, gradients at inputs from those
    at outputs. The other two concern S: they compute tangents, the derivatives of the outputs along
    the direction of the parameters, and the slopes of S at the inputs from those at the outputs.
    """

    outputs: torch.Tensor

    @abstractmethod
    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[Zero]:
        """Compute the gradients of L at the inputs from those at the outputs; None if unneeded."""

    def parameter_gradients(self, victims: int) -> Sequence[torch.Tensor]:
        """Compute the gradients of L by the layer's trained parameters; Shape (V, *shape) each."""
        return ()

    @abstractmethod
    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        """Compute the outputs' tangent, from the inputs' and directions of trained parameters."""

    @abstractmethod
    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        """Compute the slopes of S at the inputs from those at the outputs."""


class AffinePasses(LayerPasses):
    """Passes through a layer with trained parameters.

    Args:
        layer: its affine form.
        first: True if its inputs are the samples, at which no gradient of L is needed.
        inputs: Shape (V * N, ...).
    """

    def __init__(self, layer: AffineLayer, first: bool, inputs: torch.Tensor) -> None:
        self._first, self._layer, self._shape = first, layer.suited(inputs), inputs.shape
        self._inputs = self._layer.taken(inputs)
        self.outputs = self._layer.outputs(self._inputs)

    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[Zero]:
        self._grad_outputs = grad_outputs
        if self._first:
            return [None]
        return [self._layer.given(self._layer.adjoint(grad_outputs, self._shape))]

    def parameter_gradients(self, victims: int) -> Sequence[torch.Tensor]:
        self._victims = victims
        self._split_inputs = self._layer.split(self._inputs, victims)
        self._split_gradients = self._layer.split(self._grad_outputs, victims)
        return self._layer.gradients(self._split_inputs, self._split_gradients, victims)

    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        (tangent,) = tangents
        self._directions = self._layer.stacked(*directions)
        own = self._layer.by_victim(self._directions.outputs(self._split_inputs), self._victims)
        if tangent is not None:
            tangent = self._layer.linear(self._layer.taken(tangent))
        return _added(tangent, own)

    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        own = self._directions.adjoint(self._split_gradients, self._shape)
        shared = None if slopes is None else self._layer.adjoint(slopes, self._shape)
        return [self._layer.given(_added(shared, self._layer.by_victim(own, self._victims)))]


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

    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        self._grad_outputs = grad_outputs.detach().requires_grad_()
        with torch.enable_grad():
            values = (self._attached, self._inputs, self._grad_outputs)
            self._gradients = torch.autograd.grad(
                *values, create_graph=True, materialize_grads=True
            )
        return [gradient.detach() for gradient in self._gradients]

    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        pairs = zip(self._gradients, tangents, strict=True)
        moved = [(gradient, tangent) for gradient, tangent in pairs if tangent is not None]
        if not moved:
            return None
        gradients, given = zip(*moved, strict=True)
        wanted = [self._grad_outputs, *self._inputs]
        outputs, *self._curvature = torch.autograd.grad(
            gradients, wanted, given, retain_graph=True, allow_unused=True
        )
        return outputs

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

    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        return [grad_outputs * self._mask]

    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        (tangent,) = tangents
        return None if tangent is None else tangent * self._mask

    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        return [None if slopes is None else slopes * self._mask]


class SmoothPasses(LayerPasses):
    """Passes through a sigmoid or hyperbolic tangent, whose derivatives follow from its outputs."""

    def __init__(self, layer: torch.nn.Module, inputs: torch.Tensor) -> None:
        self.outputs = layer(inputs)
        self._is_tanh = type(layer) is torch.nn.Tanh
        rest = self.outputs.square() if self._is_tanh else self.outputs
        self._slope = 1 - rest if self._is_tanh else rest * (1 - rest)
        self._tangent: Zero = None

    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        self._grad_outputs = grad_outputs
        return [grad_outputs * self._slope]

    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        (tangent,) = tangents
        self._tangent = None if tangent is None else tangent * self._slope
        return self._tangent

    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        if self._tangent is None:
            return [None if slopes is None else slopes * self._slope]
        # the second derivative is the first one times this factor
        factor = -2 * self.outputs if self._is_tanh else 1 - 2 * self.outputs
        curved = self._tangent * self._grad_outputs * factor
        return [curved if slopes is None else curved.addcmul_(slopes, self._slope)]


class FlatPasses(LayerPasses):
    """Passes through a change of shape."""

    def __init__(self, layer: torch.nn.Module, inputs: torch.Tensor) -> None:
        self.outputs, self._layer, self._shape = layer(inputs), layer, inputs.shape

    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        return [grad_outputs.reshape(self._shape)]

    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        (tangent,) = tangents
        return None if tangent is None else self._layer(tangent)

    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        return [None if slopes is None else slopes.reshape(self._shape)]


class CrossEntropyPasses(LayerPasses):
    """Passes through the sum of samples' cross-entropies, of logits and soft labels t.

    With the probabilities p, the gradient at a sample's logits is p sum(t) - t, and the one at its
    labels is minus the logarithm of p.
    """

    def __init__(self, logits: torch.Tensor, targets: torch.Tensor) -> None:
        self._scores = torch.nn.functional.log_softmax(logits, 1)
        self._targets, self._mass = targets, targets.sum(1, keepdim=True)
        self.outputs = -(targets * self._scores).sum()

    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        self._grad_outputs = grad_outputs
        self._chances = self._scores.exp() * grad_outputs
        slopes = (self._chances * self._mass).addcmul_(self._targets, grad_outputs, value=-1)
        return [slopes, self._scores * -grad_outputs]

    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        self._tangent, _ = tangents  # the labels have none
        return None

    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        if self._tangent is None:
            return [None, None]
        weighted = self._chances * self._tangent
        mean = weighted.sum(1, keepdim=True)
        of_logits = (weighted - self._scores.exp() * mean) * self._mass
        return [of_logits, mean - self._tangent * self._grad_outputs]


class SumPasses(LayerPasses):
    """Passes through the sum of two values of the same shape."""

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        self.outputs = first + second

    def input_gradients(self, grad_outputs: torch.Tensor) -> Sequence[torch.Tensor]:
        return [grad_outputs, grad_outputs]

    def tangent(self, tangents: Sequence[Zero], directions: Sequence[torch.Tensor]) -> Zero:
        return plus(*tangents)

    def input_slopes(self, slopes: Zero) -> Sequence[Zero]:
        return [slopes, slopes]


@dataclass(frozen=True)
class Step:
    """A layer or function of a network, and the values that it takes.

    Args:
        passes: begins the passes of values through it.
        taken: positions among all values: those given to the network, then the steps' outputs.
        trained: names of its trained parameters.
    """

    passes: Callable[..., LayerPasses]
    taken: tuple[int, ...]
    trained: tuple[str, ...] = ()


class TangentGradients(SamplewiseGradients):
    """Gradients of all victims' samples in one batch, differentiated without a graph.

    In cells of several victims, a victim's gradient does not depend on the victims that are
    computed with it, nor on their number; on a CPU, to the last bit. For networks that `torch.fx`
    traces, with trained layers as in `gleak.attacks.matching.affine_layers`, whose samples do not
    interact.

    Raises:
        UnsplittableError: a trained parameter is used in another way.
    """

    def __init__(self, training: ClientTraining) -> None:
        self.model, self.several_victims = training.model, training.several_victims
        self.steps = traced_steps(training)
        self.trained = list(dict.fromkeys(name for step in self.steps for name in step.trained))
        if training.trained != set(self.trained):
            raise UnsplittableError(*training.trained.symmetric_difference(self.trained))

    def __call__(
        self, inputs: torch.Tensor, targets: torch.Tensor, observed: Parameters
    ) -> list[Piece]:
        rows: AbstractContextManager[None] = nullcontext()
        alone = self.several_victims and len(inputs) == 1 and kernels.on_cpu(inputs)
        if alone:
            inputs, targets = (v.expand(2, *v.shape[1:]) for v in (inputs, targets))
        if self.several_victims:  # kernels that do not depend on the number of victims left
            rows = kernels.padded_rows(self.model, inputs.flatten(0, 1))
        with rows:
            gradients = derivatives().TangentGradient.apply(inputs, targets, self)
        return [
            FormedPiece(name, gradient[:1] if alone else gradient, observed[name])
            for name, gradient in zip(self.trained, gradients, strict=True)
        ]

    def passes(self, inputs: torch.Tensor, targets: torch.Tensor) -> Passes:
        """Begin the passes of copies of all samples."""
        samples = inputs.flatten(0, 1)
        copied = samples.clone(memory_format=kernels.layout(samples))
        return Passes(self.steps, [copied, targets.flatten(0, 1)])

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.model(samples.clone()) for samples in inputs])


class Passes:
    """The four passes of one batch, and soft labels, through all steps of a network and its loss.

    The last step computes the sum of all samples' losses, Shape ().
    """

    def __init__(self, steps: Sequence[Step], given: Sequence[torch.Tensor]) -> None:
        self._steps, self._given = steps, len(given)
        self._passes: list[LayerPasses] = []
        values = list(given)
        for step in steps:
            self._passes.append(step.passes(*(values[position] for position in step.taken)))
            values.append(self._passes[-1].outputs)

    def gradients(self, victims: int, samples: int) -> dict[str, torch.Tensor]:
        """Compute the gradients of each victim's mean loss; Shape (V, *shape) each."""
        last = torch.full_like(self._passes[-1].outputs, 1 / samples)
        self._backwards(last, lambda one, outputs: one.input_gradients(outputs))
        gradients: dict[str, torch.Tensor] = {}
        for step, one in zip(self._steps, self._passes, strict=True):
            gradients |= dict(zip(step.trained, one.parameter_gradients(victims), strict=True))
        return gradients

    def slopes(self, directions: Parameters) -> list[Zero]:
        """Compute the slopes, at the given values, of the loss's derivative along directions."""
        tangents: list[Zero] = [None] * self._given
        for step, one in zip(self._steps, self._passes, strict=True):
            own = [directions[name] for name in step.trained]
            tangents.append(one.tangent([tangents[position] for position in step.taken], own))
        return self._backwards(None, lambda one, outputs: one.input_slopes(outputs))

    def _backwards(
        self, last: Zero, back: Callable[[LayerPasses, Any], Sequence[Zero]]
    ) -> list[Zero]:
        """Propagate sums from the last outputs to the given values, and return these."""
        sums: list[Zero] = [*[None] * (self._given + len(self._steps) - 1), last]
        for step, one in zip(reversed(self._steps), reversed(self._passes), strict=True):
            for position, part in zip(step.taken, back(one, sums.pop()), strict=True):
                sums[position] = plus(sums[position], part)
        return sums


def traced_steps(training: ClientTraining) -> list[Step]:
    """Trace a network, and return its steps, of which the last one is the loss.

    Raises:
        UnsplittableError: a layer with trained parameters is not affine, or adds a penalty.
    """
    if penalised_layers(training.model):
        raise UnsplittableError("penalty")

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return training.sample_losses(logits, targets).sum()

    places: dict[torch.fx.Node, int] = {}
    steps: list[Step] = []
    smoothing = training.protocol.label_smoothing
    for node in torch.fx.symbolic_trace(independent_copy(training.model)).graph.nodes:
        if node.op == "placeholder":
            places[node] = 0
        elif node.op == "output":
            crossed = training.protocol.loss == "cross_entropy" and not smoothing
            passes = CrossEntropyPasses if crossed else partial(FunctionPasses, loss)
            steps.append(Step(passes, (places[node.args[0]], 1)))
        elif node.op != "get_attr":
            taken = [given for given in node.all_input_nodes if given.op != "get_attr"]
            places[node] = len(steps) + GIVEN
            steps.append(_step(training, node, tuple(places[given] for given in taken)))
    return steps


def _step(training: ClientTraining, node: torch.fx.Node, taken: tuple[int, ...]) -> Step:
    if node.target in (operator.add, operator.iadd, torch.add) and len(taken) == 2:
        return Step(SumPasses, taken)
    if node.op != "call_module":
        return Step(partial(FunctionPasses, TracedCall(training.model, node)), taken)
    name = str(node.target)
    layer = training.model.get_submodule(name)
    own = [f"{name}.{key}" for key, _ in layer.named_parameters()]
    trained = tuple(key for key in own if key in training.trained)
    if not trained:
        return Step(_untrained(layer), taken)
    several = training.several_victims  # whose number must not change the kernels
    affine = affine_layer(layer, kernels.LEAST_ROWS["Linear"] if several else 0)
    if affine is None or len(trained) < len(own):
        raise UnsplittableError(name)
    return Step(partial(AffinePasses, affine, taken == (0,)), taken, trained)


def _untrained(layer: torch.nn.Module) -> Callable[..., LayerPasses]:
    """Return what begins the passes through a layer without trained parameters."""
    if type(layer) is torch.nn.ReLU:
        return ReluPasses
    if type(layer) in (torch.nn.Sigmoid, torch.nn.Tanh):
        return partial(SmoothPasses, layer)
    return partial(FlatPasses if type(layer) is torch.nn.Flatten else FunctionPasses, layer)


@dataclass(frozen=True)
class TracedCall:
    """A node's function or method, of values in place of the nodes that it takes."""

    model: torch.nn.Module
    node: torch.fx.Node

    def __call__(self, *values: torch.Tensor) -> torch.Tensor:
        node, left, known = self.node, iter(values), {}
        for given in node.all_input_nodes:
            attribute = operator.attrgetter(str(given.target))
            known[given] = attribute(self.model) if given.op == "get_attr" else next(left)
        arguments: Any = torch.fx.map_arg(node.args, known.__getitem__)
        options: Any = torch.fx.map_arg(node.kwargs, known.__getitem__)
        target: Any = node.target
        function = getattr(type(arguments[0]), target) if node.op == "call_method" else target
        outputs: torch.Tensor = function(*arguments, **options)
        return outputs

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedCall:
        """Copy the model alone: a node refers to its neighbours, and so to all of a network."""
        return TracedCall(deepcopy(self.model, memo), self.node)
