"""Dense layers of a network: the first, the last, and the classifier."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.batching import batch_slices
from gleak.models.parameters import as_inputs
from gleak.models.tracing import first_argument

PROBES = 3
TINY = 1e-12


@dataclass(frozen=True)
class DenseInput:
    """The name of a dense layer, and its input, Shape (N, E)."""

    layer: str
    embeddings: torch.Tensor


def first_dense_input(network: torch.nn.Module, inputs: torch.Tensor) -> DenseInput | None:
    """Run samples, Shape (N, *shape), through a network; return the input of its first dense layer.

    None: there is no such layer, it runs more than once, or its input is not one vector per sample.
    """
    return _single_vector_input(dense_inputs(network, inputs), 0)


def first_biased_input(network: torch.nn.Module, inputs: torch.Tensor) -> DenseInput | None:
    """Return the input of the first dense layer with a bias (see `first_dense_input`)."""
    return _single_vector_input(_biased_inputs(network, inputs), 0)


def _biased_inputs(network: torch.nn.Module, inputs: torch.Tensor) -> list[DenseInput]:
    passed = dense_inputs(network, inputs)
    return [entry for entry in passed if network.get_submodule(entry.layer).bias is not None]


def last_dense_input(network: torch.nn.Module, inputs: torch.Tensor) -> DenseInput | None:
    """Return the input of the last dense layer (see `first_dense_input`)."""
    return _single_vector_input(dense_inputs(network, inputs), -1)


def dense_inputs(network: torch.nn.Module, inputs: torch.Tensor) -> list[DenseInput]:
    """Run samples through a network and return the inputs of its dense layers, in their order."""
    passed: list[DenseInput] = []

    def keep(name: str, _: object, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        passed.append(DenseInput(name, first_argument(given, named)))

    with ExitStack() as stack:
        for name, layer in network.named_modules():
            if isinstance(layer, torch.nn.Linear):
                hook = layer.register_forward_pre_hook(partial(keep, name), with_kwargs=True)
                stack.enter_context(hook)
        network(inputs)
    return passed


def _single_vector_input(passed: list[DenseInput], position: int) -> DenseInput | None:
    """Return an input by its position if its layer runs once, on one vector per sample."""
    if not passed:
        return None
    chosen = passed[position]
    once = [entry.layer for entry in passed].count(chosen.layer) == 1
    return chosen if once and chosen.embeddings.ndim == 2 else None


class _ReachedLayer(Exception):  # noqa: N818
    """Exception that ends a forward pass; its argument are the embeddings."""


def features_before(network: torch.nn.Module, layer: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the differentiable function from samples, Shape (N, *shape), to a layer's input.

    Later layers are not run.
    """

    def stop(_: object, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        raise _ReachedLayer(first_argument(given, named))

    def features(inputs: torch.Tensor) -> torch.Tensor:
        hook = network.get_submodule(layer).register_forward_pre_hook(stop, with_kwargs=True)
        try:
            network(inputs.clone())
        except _ReachedLayer as reached:
            embeddings: torch.Tensor = reached.args[0]
            return embeddings
        finally:
            hook.remove()
        raise ValueError(f"layer {layer!r} does not run in the network's forward pass")

    return features


@dataclass(frozen=True)
class Scaling:
    """Map of flattened samples to the inputs of a dense layer: gain x + offset; Shape (F) each.

    The gain is nowhere 0.
    """

    gain: torch.Tensor
    offset: torch.Tensor

    def of_samples(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the layer's inputs for flattened samples; Shape (..., F)."""
        return samples * self.gain.to(samples) + self.offset.to(samples)

    @property
    def bounds(self) -> torch.Tensor:
        """Least and largest inputs of the layer for samples in [0, 1]; Shape (2, F)."""
        return torch.stack([self.offset, self.gain + self.offset]).sort(0).values

    def samples_of(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the flattened samples of which these are the layer's inputs; Shape (..., F)."""
        return (inputs - self.offset.to(inputs)) / self.gain.to(inputs)

    def gradient_of_samples(self, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return the weight's gradient as it would be if the layer took the samples themselves.

        A row of it is the sum over samples of d x, of which (gain x + offset) d was summed, and the
        bias has the sum of d. Shapes of the gradients: (..., neurons, F) and (..., neurons).
        """
        gain, offset = self.gain.to(weight), self.offset.to(weight)
        return (weight - bias[..., None] * offset) / gain

    def of_layer(
        self, weight: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weight and bias with which the layer computes the same from the samples."""
        gain, offset = self.gain.to(weight), self.offset.to(weight)
        return weight * gain, bias + weight @ offset


@dataclass(frozen=True)
class DenseLayer:
    """The first dense layer of a network that has a bias.

    ``scaling`` is that of the samples before it; None if its inputs are anything else.
    """

    name: str
    scaling: Scaling | None

    @property
    def takes_samples(self) -> bool:
        """True if its inputs are the flattened samples, or scaled ones."""
        return self.scaling is not None


def first_dense_layer(network: torch.nn.Module, shape: tuple[int, ...]) -> DenseLayer | None:
    """Return the dense layer with a bias whose inputs are the samples, else the first one to run.

    Of several layers whose inputs are the samples it is the widest.

    Returns:
        None if no layer takes the samples and the first one runs more than once, takes other than
        one vector of each sample, or has a weight or bias that is shared or computed.
    """
    like = next(network.parameters())
    graded = torch.linspace(0, 1, math.prod(shape)).to(like)
    shuffled = graded[torch.randperm(len(graded), generator=torch.Generator().manual_seed(0))]
    probes = torch.stack([torch.zeros_like(graded), torch.ones_like(graded), graded, shuffled])
    with torch.no_grad():
        passed = _biased_inputs(network, probes.unflatten(1, shape))
    own: list[DenseInput | None] = []
    for position in range(len(passed)):
        entry = _single_vector_input(passed, position)
        layer = network.get_submodule(passed[position].layer)
        owns = all(own_parameter(network, layer, kind) for kind in ("weight", "bias"))
        own.append(entry if owns else None)
    scaled = [
        DenseLayer(entry.layer, scaling)
        for entry in own
        if entry and (scaling := _scaling(entry.embeddings, probes))
        if _is_only_use(network, entry, probes.unflatten(1, shape))
    ]
    if scaled:
        return max(scaled, key=lambda layer: len(network.get_parameter(f"{layer.name}.bias")))
    return DenseLayer(own[0].layer, None) if own and own[0] else None


def layer_of_samples(network: torch.nn.Module, shape: tuple[int, ...]) -> tuple[str, Scaling]:
    """Return the name of the dense layer with a bias that takes the samples, and their scaling.

    Raises:
        IncompatibleError: there is none.
    """
    layer = first_dense_layer(network, shape)
    if layer is None or layer.scaling is None:
        raise IncompatibleError(
            "a dense layer with a bias is needed that takes the samples themselves, and this model "
            "has none; use fc2 or mlp, or model planted in front of any other"
        )
    return layer.name, layer.scaling


def _is_only_use(network: torch.nn.Module, entry: DenseInput, samples: torch.Tensor) -> bool:
    """Return True if the parameters' gradients are those of an affine map of the layer's inputs.

    They are not if the layer computes something else, if its parameters are used elsewhere, too, or
    if samples of a batch, Shape (N, *shape), change each other's inputs (batch statistics).
    """
    with torch.enable_grad():
        names = [f"{entry.layer}.{kind}" for kind in ("weight", "bias")]
        copies = {n: network.get_parameter(n).detach().clone().requires_grad_() for n in names}
        passed: list[torch.Tensor] = []

        def keep(_: object, given: Any, named: dict[str, Any], output: torch.Tensor) -> None:
            passed.extend((first_argument(given, named).detach(), output))

        layer = network.get_submodule(entry.layer)
        try:
            with layer.register_forward_hook(keep, with_kwargs=True):
                batch = torch.cat([samples, samples[1:]])
                logits = torch.func.functional_call(network, copies, (batch,))
            total = (logits * torch.arange(1, logits.shape[1] + 1).to(logits)).sum()
            inputs, outputs = passed
            slopes, weight, bias = torch.autograd.grad(
                total, [outputs, *copies.values()], allow_unused=True
            )
        except RuntimeError:
            return False
        if slopes is None or weight is None or bias is None:
            return False
        pairs = [
            (inputs[: len(samples)], entry.embeddings),
            (weight, slopes.T @ inputs),
            (bias, slopes.sum(0)),
        ]
        return all(
            torch.allclose(value, true, rtol=1e-3, atol=1e-5 * float(true.abs().max()) + TINY)
            for value, true in pairs
        )


def _scaling(embeddings: torch.Tensor, probes: torch.Tensor) -> Scaling | None:
    """Return the scaling that maps probes, the first black and white, to embeddings, or None.

    A layer whose inputs are samples divided by their own maximum gets a scaling as well, that of
    samples with a maximum of 1: the brightness of a sample cannot be found in its update, and
    attacks on scaled samples find the rest exactly, as feature inversion does not.
    """
    if embeddings.shape != probes.shape:
        return None
    offset, white = embeddings[:2]
    gain = white - offset
    fits = torch.allclose(embeddings[2:], gain * probes[2:] + offset, rtol=1e-4, atol=1e-5)
    return Scaling(gain, offset) if fits and not (gain == 0).any() else None


def true_embeddings(network: torch.nn.Module, inputs: np.ndarray) -> np.ndarray | None:
    """Compute the embeddings, Shape (V, N, E), of victims' samples, Shape (V, N, *shape).

    None: the first dense layer takes the samples, or there is none.
    """
    with torch.no_grad():
        layer = first_dense_layer(network, inputs.shape[2:])
        if layer is None or layer.takes_samples:
            return None
        embeddings: list[np.ndarray] = []
        for samples in map(partial(as_inputs, network), inputs):
            for indices in batch_slices(network, samples):
                entry = first_biased_input(network, samples[indices])
                if entry is None:
                    return None
                embeddings.append(entry.embeddings.cpu().numpy())
        return np.concatenate(embeddings).reshape(*inputs.shape[:2], -1)


@dataclass(frozen=True)
class Classifier:
    """The layer of a network that computes the logits.

    It is a dense layer with one output per class, or a 1 x 1 convolution with as many channels,
    whose outputs are pooled. Weight and bias are their names among the network's parameters, None
    if the layer shares them or computes them from others (weight norm, pruning). ``gives_logits``:
    its output is the logits, without later operations. Features are its inputs for the probes.
    """

    name: str
    layer: torch.nn.Module
    weight: str | None
    bias: str | None
    gives_logits: bool
    features: torch.Tensor

    @property
    def parameters(self) -> list[str]:
        """Names of all parameters of the layer, in the layer."""
        return [name for name, _ in self.layer.named_parameters()]

    def dense_parameters(self) -> tuple[str, str]:
        """Return the names of weight and bias of a dense classifier.

        Raises:
            IncompatibleError: it is not a dense layer, or lacks an own weight or bias.
        """
        if not isinstance(self.layer, torch.nn.Linear) or self.weight is None or self.bias is None:
            kind = type(self.layer).__name__
            raise IncompatibleError(
                f"its classifier, {kind} {self.name!r} with {' and '.join(self.parameters)}, is "
                "not a dense layer with its own weight and bias"
            )
        return self.weight, self.bias


def find_classifier(network: torch.nn.Module, shape: tuple[int, ...], classes: int) -> Classifier:
    """Find the classifier by running the network on probes.

    Of the layers with one output per class on which the logits depend, it is the last one to run
    whose output is the logits, else the last one to run. The position of a layer in the code, and
    other layers of its width, do not matter.

    Raises:
        IncompatibleError: the logits depend on no such layer.
    """
    with torch.enable_grad():
        passes: list[tuple[str, torch.nn.Module, torch.Tensor, torch.Tensor]] = []

        def keep(name: str, layer: torch.nn.Module, given: Any, named: Any, output: Any) -> None:
            inputs = first_argument(given, named).detach()
            passes.append((name, layer, inputs, output.requires_grad_()))

        like = next(network.parameters())
        probes = torch.linspace(0, 1, PROBES * math.prod(shape)).to(like).reshape(PROBES, *shape)
        with ExitStack() as stack:
            for name, layer in network.named_modules():
                if _outputs(layer) == classes:
                    hook = layer.register_forward_hook(partial(keep, name), with_kwargs=True)
                    stack.enter_context(hook)
            logits = network(probes.requires_grad_().clone())
        outputs = [output for *_, output in passes] if logits.requires_grad else []
        slopes = torch.autograd.grad(logits.sum(), outputs, allow_unused=True) if outputs else ()
        reaching = [one for one, slope in zip(passes, slopes, strict=False) if slope is not None]
        if not reaching:
            raise IncompatibleError(
                f"it has no dense layer with {classes} outputs on which its logits depend"
            )
        direct = [one for one in reaching if torch.equal(one[-1], logits)]
        name, layer, features, _ = (direct or reaching)[-1]
        weight, bias = (own_parameter(network, layer, kind) for kind in ("weight", "bias"))
        return Classifier(name, layer, weight, bias, bool(direct), features)


def _outputs(layer: torch.nn.Module) -> int | None:
    """Return the number of outputs of a layer that could be a classifier, else None."""
    if isinstance(layer, torch.nn.Linear):
        return layer.out_features
    if isinstance(layer, torch.nn.Conv2d) and layer.kernel_size == (1, 1):
        return layer.out_channels
    return None


def own_parameter(network: torch.nn.Module, layer: torch.nn.Module, kind: str) -> str | None:
    """Return the name of a layer's weight or bias, the kind, if no other layer shares it."""
    parameter = dict(layer.named_parameters(recurse=False)).get(kind)
    owners = [
        module
        for module in network.modules()
        if any(value is parameter for value in module.parameters(recurse=False))
    ]
    names = [name for name, value in network.named_parameters() if value is parameter]
    return names[0] if len(owners) == 1 else None
