"""Dummy gradients compared with plain differentiation, one victim after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.matching.client_training import ClientTraining
from gleak.matching.gradients import Gradients, Parameters
from gleak.models.losses import sample_losses
from gleak.models.penalties import penalties
from gleak.models.tracing import described, trace

ROUNDING = {torch.float64: 1e-14}
SINGLE_ROUNDING = 1e-6
"""Largest squared error that is rounding, relative to the squared length of what is right."""
FAINT = 1e-6
"""Share of the whole gradient's squared length below which that of a parameter counts as this."""


@dataclass(frozen=True)
class Trial:
    """Random samples of a few victims, and what is right of them.

    Args:
        inputs: Shape (V, N, *sample shape), to be differentiated.
        targets: soft labels, Shape (V, N, classes), to be differentiated.
        gradients: by parameter, Shape (V, *shape).
        slopes: derivatives of the gradients' inner products with `gradients`, taken as constants,
            with respect to inputs and targets.
    """

    inputs: Tensor
    targets: Tensor
    gradients: Parameters
    slopes: tuple[Tensor, ...]

    @classmethod
    def of(cls, inputs: Tensor, targets: Tensor, formed: Parameters) -> Trial:
        """Return the trial of gradients that are known to be right.

        Args:
            inputs: Shape (V, N, *sample shape).
            targets: Shape (V, N, classes).
            formed: by parameter, Shape (V, *shape), attached to the graph of both.
        """
        gradients = {name: value.detach() for name, value in formed.items()}
        products = [(value * gradients[name]).sum() for name, value in formed.items()]
        slopes = _slopes(products, inputs, targets)
        return cls(inputs, targets, gradients, slopes)

    def wrong_parameters(self, gradients: Gradients) -> list[str]:
        """Return the names of the parameters whose gradients a way does not give.

        Where only their derivatives with respect to samples and labels are wrong, these are all
        parameters.
        """
        pieces = gradients(self.inputs, self.targets, self.gradients)
        errors = {piece.name: piece.squared_distance().sum().item() for piece in pieces}
        squares = {name: float(value.square().sum()) for name, value in self.gradients.items()}
        least = FAINT * sum(squares.values())
        wrong = [
            name
            for name, square in squares.items()
            if not errors.get(name, torch.inf) <= self._rounding * max(square, least)
        ]
        return wrong or (
            [] if self._has_slopes([piece.inner() for piece in pieces]) else [*squares]
        )

    def _has_slopes(self, products: Sequence[Tensor]) -> bool:
        """Whether inner products with the right gradients have the right derivatives."""
        found = _slopes(products, self.inputs, self.targets)
        pairs = list(zip(found, self.slopes, strict=True))
        error = sum(float((slope - right).square().sum()) for slope, right in pairs)
        length = sum(float(right.square().sum()) for _, right in pairs)
        return error <= self._rounding * length

    @property
    def _rounding(self) -> float:
        return ROUNDING.get(self.inputs.dtype, SINGLE_ROUNDING)


def _slopes(products: Sequence[Tensor], inputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    total = torch.stack([product.sum() for product in products]).sum()
    return torch.autograd.grad(total, (inputs, targets), materialize_grads=True)


def plain_trial(training: ClientTraining, inputs: Tensor, targets: Tensor) -> Trial:
    """Differentiate each victim's loss at the network's own parameters, in place.

    Args:
        training: of one step; its trained parameters, and these alone, require a gradient.
        inputs: Shape (V, N, *sample shape).
        targets: Shape (V, N, classes).

    Raises:
        IncompatibleError: a layer has no second derivative; names it.
    """
    parameters = {name: training.model.get_parameter(name) for name in sorted(training.trained)}
    rows = []
    for samples, labels in zip(inputs, targets, strict=True):
        with penalties(training.model) as added:
            logits = training.model(samples.clone())
        loss = sum(added, sample_losses(training.loss, logits, labels)).mean()
        values = list(parameters.values())
        rows.append(torch.autograd.grad(loss, values, create_graph=True, materialize_grads=True))
    formed = dict(zip(parameters, map(torch.stack, zip(*rows, strict=True)), strict=True))
    try:
        return Trial.of(inputs, targets, formed)
    except RuntimeError as error:
        raise _without_second_derivative(training.model, inputs[0].detach(), error) from error


def _without_second_derivative(
    network: nn.Module, inputs: Tensor, error: Exception
) -> IncompatibleError:
    """The error that names the layer which cannot be differentiated twice."""
    faulty = (
        described(network, one.name)
        for one in trace(network, inputs)
        if one.given is not None and not _twice_differentiable(one.layer, one.given)
    )
    return IncompatibleError(
        f"{next(faulty, 'the network')} has no second derivative in torch ({error}), which "
        "matching gradients needs; replace it by a layer that has one, or use an attack that does "
        "not match gradients"
    )


def _twice_differentiable(layer: nn.Module, given: Tensor) -> bool:
    """Whether the derivative of a layer's output can be differentiated, tried on an input.

    Layers of several inputs or outputs are not tried and pass.
    """
    given = given.clone().requires_grad_()
    try:
        (slope,) = torch.autograd.grad(
            layer(given.clone()).square().sum(), given, create_graph=True
        )
        torch.autograd.grad(slope.square().sum(), given, allow_unused=True)
    except RuntimeError as error:
        return "derivative" not in str(error)
    except (TypeError, AttributeError):
        return True
    return True
