"""Selection of the fastest correct method of computing dummy gradients.

Each method is verified against plain differentiation, one victim after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gleak.artifacts.protocol import Loss, Protocol
from gleak.attacks.matching import kernels
from gleak.attacks.matching.gradients import (
    ClientTraining,
    Gradients,
    LoopedGradients,
    Parameters,
    VmappedGradients,
)
from gleak.attacks.matching.layerwise import LayerwiseGradients, UnsplittableError
from gleak.attacks.matching.tangent_gradients import TangentGradients
from gleak.attacks.matching.unrolled import GeneralUnrolled, LayerwiseUnrolled
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.differentiation import differentiable_kernels, penalties
from gleak.models.examination import check_searchable
from gleak.models.parameters import double_copy, random_samples, trained_parameters
from gleak.models.tracing import describe_layer, failing_layer, trace
from gleak.optimizers.schedules import Constant

Method = Callable[[ClientTraining], Gradients]
VICTIMS = 2
BATCHES = (1, 3)
"""Number of victims that a method is tried with, and their batch sizes."""
MINI_BATCH, STEPS = 2, 2
"""Samples of a step, and local steps, that repeated training is tried with."""
HALF_DENSE, HARDLY_DENSE = 1 / 2, 1 / 4
"""Share of weights in dense layers up to which gradients are differentiated by tangents: in small
batches or of one victim, and in others."""
SMALL_BATCH, MOST_WEIGHTS = 4, 2**22
"""Samples of a small batch, and the number of weights up to which the gradients of several victims
are differentiated by tangents."""
KEPT = 4
"""Number of networks whose check is cached."""
log = logging.getLogger(__name__)
DOUBLE_ROUNDING, SINGLE_ROUNDING = 1e-14, 1e-6
"""Largest squared error due to rounding, relative to the squared length of the expected value."""
FAINT = 1e-6
"""Lower bound of a parameter's squared length in relative errors, as a share of the total."""


@lru_cache(KEPT)
def check_gradients(
    network: torch.nn.Module, loss: Loss, shape: tuple[int, ...], classes: int
) -> None:
    """Check that the gradients of a network can be matched.

    Raises:
        IncompatibleError: see `verified_method`.
    """
    trained = frozenset(trained_parameters(network))
    verified_method(ClientTraining(network, shape, classes, trained, Protocol(loss=loss)))


def verified_method(training: ClientTraining) -> Method:
    """Return the constructor of the fastest correct method of computing dummy gradients.

    Methods are tried on random samples of a few victims, in double precision where the network
    allows it: gradients, and their derivatives with respect to samples and labels, must equal those
    of `torch.autograd`, one victim after the other.

    Raises:
        IncompatibleError: a layer cannot be differentiated twice, or no method gives the gradient
            of a parameter; names the layer.
    """
    with differentiable_kernels(training.model):
        copied = double_training(training)
        one_step = replace(copied, protocol=copied.protocol.of_one_step())
        check_searchable(one_step.model, one_step.input_shape)
        trials = [plain_trial(one_step, *batch) for batch in _batches(one_step, BATCHES)]
        _check_general_method(one_step, trials)
        *faster, general = _candidates(training)
        protocol = training.protocol
        if not protocol.shows_gradient:
            whole = protocol.mini_batch == protocol.batch_size
            size = (protocol.clients or 1) * (MINI_BATCH if whole else STEPS * MINI_BATCH)
            few = replace(
                protocol,
                local_steps=min(STEPS, protocol.local_steps),
                schedule=Constant(),
                batch_size=size,
                mini_batch=size if whole else MINI_BATCH,
            )
            copied = replace(copied, protocol=few)
            looped = _looped_steps(copied)
            trials = [
                Trial.of(*batch, looped.mean_gradients(*batch))
                for batch in _batches(copied, [size])
            ]
        return next((method for method in faster if _agrees(method, copied, trials)), general)


def _candidates(training: ClientTraining) -> Iterator[Method]:
    """Return the candidate methods, the fastest first; the last one is the most general."""
    dense = _share_of_dense(training)
    if training.protocol.shows_gradient:
        if _tangents_are_faster(training, dense):
            yield TangentGradients
        yield from (LayerwiseGradients, VmappedGradients, LoopedGradients)
        return
    if dense > 1 / 2 and training.protocol.is_plain and training.protocol.clients is None:
        yield lambda local: LayerwiseUnrolled(local, LayerwiseGradients(local))
    yield lambda local: GeneralUnrolled(local, VmappedGradients(local))
    yield _looped_steps


def general_method(training: ClientTraining) -> Gradients:
    """Return the most general method, whose results can be differentiated as often as needed."""
    shown = training.protocol.shows_gradient
    return LoopedGradients(training) if shown else _looped_steps(training)


def double_training(training: ClientTraining) -> ClientTraining:
    """Return the training of a copy in double precision, where the network allows it.

    Only the trained parameters of the copy require a gradient.
    """
    samples = random_samples(training.model, max(BATCHES), training.input_shape)
    model = double_copy(training.model, samples)
    for name, value in model.named_parameters():
        value.requires_grad_(name in training.trained)
    return replace(training, model=model)


def _looped_steps(training: ClientTraining) -> GeneralUnrolled:
    return GeneralUnrolled(training, LoopedGradients(training))


def _tangents_are_faster(training: ClientTraining, dense: float) -> bool:
    """Return True if `TangentGradients` is faster than `LayerwiseGradients`.

    Its share of the time on one core: of FC-2 1.6, of a ResNet20 2/3; of a LeNet, half of whose
    weights are dense, 0.55 for one victim, 0.66 for eight and 0.85 for 64, with eight samples each
    0.8 for eight and 1.2 for one of several; of a ResNet18, of 11 million weights, 0.75 for one and
    1.35 for four. On a GPU, where no time was measured, it starts half as many kernels.
    """
    weights = [training.model.get_parameter(name) for name in training.trained]
    if not training.several_victims or not kernels.on_cpu(weights[0]):
        return dense <= HALF_DENSE
    most = HALF_DENSE if training.protocol.batch_size <= SMALL_BATCH else HARDLY_DENSE
    return dense <= most and sum(weight.numel() for weight in weights) <= MOST_WEIGHTS


def _share_of_dense(training: ClientTraining) -> float:
    """Return the share of trained weights in dense layers.

    If it is large, methods are faster that do not form the gradients of dense layers: on one core
    `LayerwiseUnrolled` takes two thirds of the time and two fifths of the memory of
    `GeneralUnrolled` for a LeNet of 128 x 128 pixels, but 1.5 times its time for a ResNet20.
    """
    model, sizes = training.model, {True: 0, False: 0}
    for name in training.trained:
        layer = model.get_submodule(name.rpartition(".")[0])
        sizes[isinstance(layer, torch.nn.Linear)] += model.get_parameter(name).numel()
    return sizes[True] / sum(sizes.values())


def _batches(
    training: ClientTraining, sizes: Sequence[int]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Draw samples and soft labels, but no single sample if the network does not accept it."""
    drawn = random_samples(training.model, VICTIMS * max(sizes), training.input_shape)
    generator = torch.Generator().manual_seed(1)
    for size in sizes:
        if size == 1 and failing_layer(training.model, drawn[:1]):
            continue
        inputs = drawn[: VICTIMS * size].unflatten(0, (VICTIMS, size))
        logits = torch.randn(
            VICTIMS, size, training.classes, generator=generator, dtype=torch.float32
        ).to(drawn)
        yield inputs.clone().requires_grad_(), logits.softmax(2).requires_grad_()


def _check_general_method(training: ClientTraining, trials: Sequence[Trial]) -> None:
    """Check the method that fits any network that runs at other parameters; name a wrong layer."""
    looped = LoopedGradients(training)
    for wrong in filter(None, (trial.wrong_parameters(looped) for trial in trials)):
        layer, _, name = wrong[0].rpartition(".")
        raise IncompatibleError(
            f"the gradient of {name!r} of {describe_layer(training.model, layer)} differs from "
            "that of torch.autograd once the parameter is replaced by another tensor; use "
            "parameters through the module that owns them, and keep no references to them elsewhere"
        )


def _agrees(method: Method, training: ClientTraining, trials: Sequence[Trial]) -> bool:
    """Return True if a method passes all trials."""
    try:
        gradients = method(training)
        return not any(trial.wrong_parameters(gradients) for trial in trials)
    except UnsplittableError:
        return False
    except Exception as error:  # under vmap a user's module may raise errors of any kind
        log.debug("method of computing gradients rejected: %s", error)
        return False


@dataclass(frozen=True)
class Trial:
    """Random samples and soft labels of a few victims, with the correct gradients.

    The slopes are derivatives of the gradients' inner products with constants of the same values,
    with respect to inputs and targets.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    gradients: Parameters
    slopes: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, inputs: torch.Tensor, targets: torch.Tensor, formed: Parameters) -> Trial:
        """Build a trial from correct gradients, attached to the graph of inputs and targets."""
        gradients = {name: value.detach() for name, value in formed.items()}
        products = [(value * gradients[name]).sum() for name, value in formed.items()]
        return cls(inputs, targets, gradients, _slopes(products, inputs, targets))

    def wrong_parameters(self, gradients: Gradients) -> list[str]:
        """Return the names of the parameters whose gradients a method does not give.

        All of them, if only the derivatives with respect to samples and labels are wrong.
        """
        rounding = DOUBLE_ROUNDING if self.inputs.dtype == torch.float64 else SINGLE_ROUNDING
        pieces = gradients(self.inputs, self.targets, self.gradients)
        errors = {piece.name: piece.squared_distance().sum().item() for piece in pieces}
        squares = {name: float(value.square().sum()) for name, value in self.gradients.items()}
        least = FAINT * sum(squares.values())
        wrong = [
            name
            for name, square in squares.items()
            if not errors.get(name, torch.inf) <= rounding * max(square, least)
        ]
        if wrong:
            return wrong
        actual = _slopes([piece.inner() for piece in pieces], self.inputs, self.targets)
        pairs = list(zip(actual, self.slopes, strict=True))
        error = sum(float((slope - expected).square().sum()) for slope, expected in pairs)
        length = sum(float(expected.square().sum()) for _, expected in pairs)
        return [] if error <= rounding * length else [*squares]


def _slopes(
    products: Sequence[torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    total = torch.stack([product.sum() for product in products]).sum()
    return torch.autograd.grad(total, (inputs, targets), materialize_grads=True)


def plain_trial(training: ClientTraining, inputs: torch.Tensor, targets: torch.Tensor) -> Trial:
    """Differentiate each victim's loss at the network's own parameters, in place.

    Raises:
        IncompatibleError: a layer has no second derivative; names it.
    """
    parameters = {name: training.model.get_parameter(name) for name in sorted(training.trained)}
    rows = []
    for samples, labels in zip(inputs, targets, strict=True):
        with penalties(training.model) as added:
            logits = training.model(samples.clone())
        loss = sum(added, training.sample_losses(logits, labels)).mean()
        values = list(parameters.values())
        rows.append(torch.autograd.grad(loss, values, create_graph=True, materialize_grads=True))
    formed = dict(zip(parameters, map(torch.stack, zip(*rows, strict=True)), strict=True))
    try:
        return Trial.of(inputs, targets, formed)
    except RuntimeError as error:
        faulty = (
            describe_layer(training.model, call.name)
            for call in trace(training.model, inputs[0].detach())
            if call.inputs is not None and not _twice_differentiable(call.layer, call.inputs)
        )
        raise IncompatibleError(
            f"{next(faulty, 'the network')} has no second derivative in torch ({error}), which "
            "matching gradients needs; replace it by a layer that has one, or use an attack that "
            "does not match gradients"
        ) from error


def _twice_differentiable(layer: torch.nn.Module, given: torch.Tensor) -> bool:
    """Try to differentiate a layer's output twice; layers of several inputs or outputs pass."""
    given = given.clone().requires_grad_()
    try:
        value = layer(given.clone()).square().sum()
        (slope,) = torch.autograd.grad(value, given, create_graph=True)
        torch.autograd.grad(slope.square().sum(), given, allow_unused=True)
    except (RuntimeError, TypeError, AttributeError) as error:
        return not isinstance(error, RuntimeError) or "derivative" not in str(error)
    return True
