"""Gradients of the dummy samples of all victims in one batch, differentiated by a pass of tangents.

A search needs the derivative of a function of the gradient g of the loss L by the parameters. With
v, the function's derivative by g, this is the derivative of S = <v, g> by the samples, and S is the
derivative of L along the direction v of the parameters. Two passes compute L and g; a pass of
tangents along v computes S, and a pass back its slopes at the samples (Pearlmutter 1994, "Fast
exact multiplication by the Hessian", with a derivative by samples in place of one by parameters).
No graph of the gradient's computation is built or differentiated.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from typing_extensions import override

from gleak.attacks.matching.affine_layers import affine_layer
from gleak.attacks.matching.distances.base import Piece
from gleak.attacks.matching.gradients import ClientTraining, Parameters
from gleak.attacks.matching.layer_passes import (
    AffinePasses,
    FunctionPasses,
    LayerPasses,
    ReluPasses,
    SumPasses,
    Zero,
    plus,
)
from gleak.attacks.matching.layerwise import UnsplittableError, padded_rows
from gleak.attacks.matching.microbatches import SamplewiseGradients
from gleak.attacks.matching.pieces import FormedPiece
from gleak.core.lazy import torch
from gleak.models.parameters import independent_copy
from gleak.models.sample_losses import penalised_layers, sample_losses

IMAGES = 4
GIVEN = 2
"""Number of values given to the steps: samples and soft labels."""


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
    computed with it, nor on their number, to the last bit. For networks that `torch.fx` traces,
    with trained layers as in `gleak.attacks.matching.affine_layers`.

    Args:
        training: the network, whose samples do not interact, and its loss.

    Raises:
        UnsplittableError: a trained parameter is used in another way.
    """

    def __init__(self, training: ClientTraining) -> None:
        self.model, self.several_victims = training.model, training.several_victims
        self.steps = traced_steps(training)
        self.trained = list(dict.fromkeys(name for step in self.steps for name in step.trained))
        if training.trained != set(self.trained):
            raise UnsplittableError(*training.trained.symmetric_difference(self.trained))

    @override
    def __call__(
        self, inputs: torch.Tensor, targets: torch.Tensor, observed: Parameters
    ) -> list[Piece]:
        gradients = (self._of_several if self.several_victims else self._of_one)(inputs, targets)
        return [
            FormedPiece(name, gradient, observed[name])
            for name, gradient in zip(self.trained, gradients, strict=True)
        ]

    def _of_one(self, inputs: torch.Tensor, targets: torch.Tensor) -> Sequence[torch.Tensor]:
        from gleak.attacks.matching.functions import TangentGradient

        gradients: tuple[torch.Tensor, ...] = TangentGradient.apply(inputs, targets, self)
        return gradients

    def passes(self, inputs: torch.Tensor, targets: torch.Tensor) -> Passes:
        """Begin the passes of all victims' samples, which are copied."""
        return Passes(self.steps, [_copied(inputs.flatten(0, 1)), targets.flatten(0, 1)])

    def _of_several(self, inputs: torch.Tensor, targets: torch.Tensor) -> Sequence[torch.Tensor]:
        """Compute the gradients with kernels that do not depend on the number of victims left."""
        if len(inputs) == 1:
            twice = (values.expand(2, *values.shape[1:]) for values in (inputs, targets))
            return [gradient[:1] for gradient in self._of_several(*twice)]
        with padded_rows(self.model, inputs.shape[:2].numel()):
            return self._of_one(inputs, targets)

    @override
    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.model(samples.clone()) for samples in inputs])


def _copied(inputs: torch.Tensor) -> torch.Tensor:
    """Copy samples; images with channels last, for which convolutions are faster on a CPU."""
    images = inputs.ndim == IMAGES
    return inputs.clone(memory_format=torch.channels_last if images else torch.preserve_format)


class Passes:
    """The four passes of one batch through all steps of a network and its loss.

    Args:
        steps: the last one computes the sum of all samples' losses, Shape ().
        given: values given to the network, and soft labels.
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
    """Trace a network, and return its steps, of which the last one is the mean loss.

    Raises:
        UnsplittableError: a trained parameter is not used by one of the layers of
            `gleak.attacks.matching.affine_layers`, or a layer adds a penalty.
    """
    if penalised_layers(training.model):
        raise UnsplittableError("penalty")
    places: dict[torch.fx.Node, int] = {}
    steps: list[Step] = []
    for node in torch.fx.symbolic_trace(independent_copy(training.model)).graph.nodes:
        if node.op == "placeholder":
            places[node] = 0
        elif node.op == "output":
            steps.append(Step(partial(FunctionPasses, _loss(training)), (places[node.args[0]], 1)))
        elif node.op != "get_attr":
            taken = [given for given in node.all_input_nodes if given.op != "get_attr"]
            places[node] = len(steps) + GIVEN
            steps.append(_step(training, node, tuple(places[given] for given in taken)))
    return steps


def _loss(training: ClientTraining) -> Callable[..., torch.Tensor]:
    return lambda logits, targets: sample_losses(training.protocol.loss, logits, targets).sum()


def _step(training: ClientTraining, node: torch.fx.Node, taken: tuple[int, ...]) -> Step:
    """Return the step of a node that takes these values."""
    if node.target in (operator.add, operator.iadd, torch.add) and len(taken) == 2:
        return Step(SumPasses, taken)
    if node.op != "call_module":
        return Step(partial(FunctionPasses, partial(_called, training.model, node)), taken)
    name = str(node.target)
    layer = training.model.get_submodule(name)
    own = [f"{name}.{key}" for key, _ in layer.named_parameters()]
    trained = tuple(key for key in own if key in training.trained)
    if not trained:
        passes = ReluPasses if type(layer) is torch.nn.ReLU else partial(FunctionPasses, layer)
        return Step(passes, taken)
    affine = affine_layer(layer)
    if affine is None or len(trained) < len(own):
        raise UnsplittableError(name)
    return Step(partial(AffinePasses, affine), taken, trained)


def _called(model: torch.nn.Module, node: torch.fx.Node, *values: torch.Tensor) -> torch.Tensor:
    """Call a node's function or method with values in place of the nodes that it takes."""
    left = iter(values)
    known = {
        given: _attribute(model, given) if given.op == "get_attr" else next(left)
        for given in node.all_input_nodes
    }
    arguments: Any = torch.fx.map_arg(node.args, known.__getitem__)
    options: Any = torch.fx.map_arg(node.kwargs, known.__getitem__)
    target: Any = node.target
    function = getattr(type(arguments[0]), target) if node.op == "call_method" else target
    outputs: torch.Tensor = function(*arguments, **options)
    return outputs


def _attribute(model: torch.nn.Module, node: torch.fx.Node) -> Any:
    return operator.attrgetter(str(node.target))(model)
