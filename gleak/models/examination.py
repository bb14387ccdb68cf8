"""Checks, before any work, that clients can train a network and attacks can repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.layer_search import features_before
from gleak.models.parameters import independent_copy, random_samples, trained_parameters, unwrapped
from gleak.models.stochastic import sampling_layers, stochastic_training_mode
from gleak.models.tracing import Pass, describe_layer, failing_layer, layer_without_graph, trace
from gleak.runtime.seeding import own_draws

SAMPLES = 3


def check_trainable(network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Check that clients can train a network and attacks can repeat its computations.

    A few random samples pass through a copy of it, in evaluation mode and as in clients' training.

    Raises:
        IncompatibleError: it is a single layer, has no trained or has uninitialised parameters,
            does not accept such samples, does not return logits, has outputs or gradients that are
            not finite, changes its parameters, draws random numbers in evaluation mode or without
            torch's seed, or keeps a state that changes its outputs; names the layer and the remedy.
    """
    _check_form(network)
    if type(network).__module__.startswith("torch.nn") and not any(network.children()):
        raise IncompatibleError(
            f"the network is a single layer, {type(network).__name__}; wrap it in "
            "torch.nn.Sequential"
        )
    trained_parameters(network)
    copied = independent_copy(network).eval()
    samples = random_samples(copied, SAMPLES, shape)
    _logits(copied, samples, classes)
    for one in trace(copied, samples):
        if one.output is not None and not one.output.isfinite().all():
            raise IncompatibleError(
                f"{describe_layer(copied, one.name)} returns values that are not finite for "
                "samples in [0, 1]; check its initialisation"
            )
    if drawing := sampling_layers(copied, samples):
        raise IncompatibleError(
            f"{describe_layer(copied, drawing[0])} draws random numbers in evaluation mode, so "
            "that no attacker can compute its output; draw in training mode only, as "
            "functional.dropout(..., training=self.training) does"
        )
    _check_parameters(copied, samples)
    before = _seeded_trace(copied, samples)
    _check_equal(copied, before, _seeded_trace(copied, samples))
    with own_draws(), stochastic_training_mode(copied, samples):
        _check_parameters(copied, samples)
        _check_equal(copied, *(_seeded_trace(copied, samples) for _ in range(2)))
    _check_equal(copied, before, _seeded_trace(copied, samples))
    _check_gradients(copied, samples, classes)


def check_differentiable(network: torch.nn.Module, shape: tuple[int, ...], layer: str = "") -> None:
    """Check that logits, or a layer's inputs, have a derivative by the samples, for searches.

    Raises:
        IncompatibleError: names the layer that computes without a graph.
    """
    copied = independent_copy(network).requires_grad_(False)
    compute = features_before(copied, layer) if layer else copied
    samples = random_samples(copied, SAMPLES, shape).requires_grad_()
    cutting = layer_without_graph(copied, lambda: compute(samples.clone()))
    if cutting is not None:
        raise IncompatibleError(
            f"{describe_layer(network, cutting)} computes without a graph, so that a search for "
            "samples has no derivative; do not detach values or run layers under torch.no_grad "
            "(requires_grad_(False) freezes parameters, too)"
        )


def check_searchable(network: torch.nn.Module, shape: tuple[int, ...], layer: str = "") -> None:
    """Check like `check_differentiable`, and that the network takes values outside of [0, 1]."""
    check_differentiable(network, shape, layer)
    copied = independent_copy(network)
    if failure := failing_layer(copied, 3 * random_samples(copied, SAMPLES, shape) - 1):
        name, error = failure
        raise IncompatibleError(
            f"{describe_layer(network, name)} does not accept values in [-1, 2] of the samples "
            f"({error}), and a search for samples may leave [0, 1]; clamp them in the forward pass"
        )


def count_logits(network: torch.nn.Module, shape: tuple[int, ...]) -> int:
    """Return the number of logits of a sample.

    Raises:
        IncompatibleError: the network does not accept such samples, or does not return logits.
    """
    _check_form(network)
    copied = independent_copy(network)
    return _logits(copied, random_samples(copied, SAMPLES, shape)).shape[1]


def _check_form(network: torch.nn.Module) -> None:
    """Check that layers can be examined, and that parameters are initialised and not complex."""
    for name, layer in network.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            raise IncompatibleError(
                f"{describe_layer(network, name)} is compiled by torch.jit, so that its layers "
                "cannot be examined; give the module from which it was scripted or traced, with "
                "its load_state_dict(...)"
            )
    if unwrapped(network) is not network:
        raise IncompatibleError(
            f"the network is wrapped in {type(network).__name__}; give the one inside"
        )
    for name, value in network.named_parameters():
        if value.is_complex():
            raise IncompatibleError(
                f"parameter {name} is complex; keep real and imaginary parts as two parameters, "
                "from which torch.complex makes it in the forward pass"
            )
    check_no_hooks(network)
    lazy = [name for name, value in network.named_parameters() if torch.nn.parameter.is_lazy(value)]
    if lazy:
        raise IncompatibleError(
            f"parameter {lazy[0]} is not initialised; give lazy layers their sizes, or run one "
            "batch through the network before returning it"
        )
    kinds = {value.dtype: name for name, value in network.named_parameters()}
    if len(kinds) > 1:
        kept = " and ".join(f"{name} in {kind}" for kind, name in kinds.items())
        raise IncompatibleError(
            f"parameters are kept in several precisions: {kept}; convert the network to one, as "
            ".double() does"
        )


def check_no_hooks(network: torch.nn.Module) -> None:
    """Check that no hook changes the gradient of a parameter: copies do not have such hooks.

    Raises:
        IncompatibleError: names the parameter.
    """
    for name, value in network.named_parameters():
        if value._backward_hooks or value._post_accumulate_grad_hooks:
            raise IncompatibleError(
                f"a hook is registered on parameter {name}, which would change its gradient in the "
                "client but not in a copy of the network; remove the hook, and apply what it does "
                "to the gradient yourself"
            )


def _logits(
    network: torch.nn.Module, samples: torch.Tensor, classes: int | None = None
) -> torch.Tensor:
    if failure := failing_layer(network, samples):
        name, error = failure
        raise IncompatibleError(
            f"{describe_layer(network, name)} does not accept samples of shape "
            f"{tuple(samples.shape[1:])}: {error}"
        )
    with torch.no_grad():
        logits = network(samples.clone())
    if not isinstance(logits, torch.Tensor):
        raise IncompatibleError(
            f"the network returns a {type(logits).__name__}, not a tensor of logits; wrap it in a "
            "module that returns only the logits"
        )
    if (
        logits.shape[:1] != samples.shape[:1]
        or logits.ndim != 2
        or (classes is not None and logits.shape[1] != classes)
    ):
        raise IncompatibleError(
            f"the network returns outputs of shape {tuple(logits.shape)} for {len(samples)} "
            f"samples, expected ({len(samples)}, {classes or 'classes'}): one logit for each class"
        )
    return logits


def _check_parameters(network: torch.nn.Module, samples: torch.Tensor) -> None:
    parameters = dict(network.named_parameters())
    before = {name: value.detach().clone() for name, value in parameters.items()}
    with torch.no_grad():
        network(samples.clone())
    for name, value in parameters.items():
        if not torch.equal(value, before[name]):
            layer, _, parameter = name.rpartition(".")
            raise IncompatibleError(
                f"{describe_layer(network, layer)} changes its parameter {parameter!r} in its "
                "forward pass; use a buffer for values that change, on which no logit depends in "
                "evaluation mode"
            )


def _check_equal(network: torch.nn.Module, first: list[Pass], second: list[Pass]) -> None:
    for one, other in zip_longest(first, second):
        if one is None or other is None or not _same(one.output, other.output):
            raise IncompatibleError(
                f"{describe_layer(network, (one or other).name)} returns different values for the "
                "same samples and the same seed; draw random numbers by torch's functions without "
                "a separate generator, and keep no state between forward passes that changes "
                "outputs in evaluation mode"
            )


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is other if one is None or other is None else torch.equal(one, other)


def _seeded_trace(network: torch.nn.Module, samples: torch.Tensor) -> list[Pass]:
    with own_draws():
        torch.manual_seed(0)
        return trace(network, samples)


def _check_gradients(network: torch.nn.Module, samples: torch.Tensor, classes: int) -> None:
    trained = trained_parameters(network)
    labels = torch.arange(len(samples), device=samples.device) % classes
    try:
        loss = torch.nn.functional.cross_entropy(network(samples.clone()), labels)
    except RuntimeError as error:
        raise IncompatibleError(
            f"the network computes logits, but not for training ({error}); compute nothing on "
            "which they depend under torch.inference_mode"
        ) from error
    if not loss.requires_grad:
        raise IncompatibleError(
            "the logits depend on no trained parameter, so clients have no update to send; do not "
            "detach the logits or compute them under torch.no_grad"
        )
    try:
        gradients = _gradients(loss, list(trained.values()))
    except RuntimeError as error:
        name = _first_without_derivative(network, samples)
        raise IncompatibleError(
            f"{describe_layer(network, name)} cannot be differentiated ({error}); replace it by a "
            "differentiable layer"
        ) from error
    for name, gradient in zip(trained, gradients, strict=True):
        if gradient.layout != torch.strided:
            raise IncompatibleError(
                f"the gradient of {name} is a sparse tensor; build its layer with sparse=False"
            )
        if not gradient.isfinite().all():
            layer, _, _ = name.rpartition(".")
            raise IncompatibleError(
                f"the gradient of {name} of {describe_layer(network, layer)} is not finite for "
                "samples in [0, 1]; check for roots, logarithms or divisions at zero"
            )


def _gradients(value: torch.Tensor, variables: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Compute gradients with their graph, which some layers of torch do not support."""
    return torch.autograd.grad(value, variables, create_graph=True, materialize_grads=True)


def _first_without_derivative(network: torch.nn.Module, samples: torch.Tensor) -> str:
    for one in trace(network, samples):
        if one.inputs is not None and one.output is not None:
            inputs = one.inputs.clone().requires_grad_()
            try:
                _gradients(one.layer(inputs * 1).sum(), [inputs])
            except RuntimeError:
                return one.name
    return ""
