"""Dense layers of a network: the first, the last, and the classifier."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.models.batching import batch_slices


@dataclass(frozen=True)
class Entry:
    """A dense layer with a bias that a network passes, and what it is given.

    Args:
        layer: its name in the network.
        embeddings: Shape (N, E).
    """

    layer: str
    embeddings: Tensor


def first_dense_entry(network: nn.Module, inputs: Tensor) -> Entry | None:
    """Run samples through a network and tell what its first dense layer is given of them.

    Args:
        network: in the state it is to run in.
        inputs: Shape (N, *shape).

    Returns:
        None where there is none, or it is passed more than once or not given one vector a sample.
    """
    return _of_vectors(_dense_entries(network, inputs), 0)


def last_dense_entry(network: nn.Module, inputs: Tensor) -> Entry | None:
    """As `first_dense_entry`, of the last dense layer, which is a classifier's."""
    return _of_vectors(_dense_entries(network, inputs), -1)


def _dense_entries(network: nn.Module, inputs: Tensor) -> list[Entry]:
    """Every pass of a dense layer with a bias, in order."""
    passed: list[Entry] = []
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, given, name=name: passed.append(Entry(name, given[0]))
        )
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Linear) and layer.bias is not None
    ]
    try:
        network(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return passed


def _of_vectors(passed: list[Entry], position: int) -> Entry | None:
    """The entry in this place if its layer is passed once and given one vector a sample."""
    if not passed:
        return None
    chosen = passed[position]
    once = [entry.layer for entry in passed].count(chosen.layer) == 1
    return chosen if once and chosen.embeddings.ndim == 2 else None


class _ReachedLayer(Exception):  # noqa: N818
    """Ends a pass through a network where its embeddings are known."""

    def __init__(self, embeddings: Tensor) -> None:
        super().__init__()
        self.embeddings = embeddings


def features_before(network: nn.Module, layer: str) -> Callable[[Tensor], Tensor]:
    """The part of a network before one of its layers; what comes behind is not run.

    Args:
        network: left as it is.
        layer: the name of a layer that it passes.

    Returns:
        From samples, Shape (N, *shape), to what the layer is given of them, differentiable.
    """

    def stop(_: nn.Module, given: tuple[Any, ...]) -> None:
        raise _ReachedLayer(given[0])

    def features(inputs: Tensor) -> Tensor:
        hook = network.get_submodule(layer).register_forward_pre_hook(stop)
        try:
            network(inputs)
        except _ReachedLayer as reached:
            return reached.embeddings
        finally:
            hook.remove()
        raise ValueError(f"the network does not pass layer {layer!r}")

    return features


@dataclass(frozen=True)
class DenseLayer:
    """Which layer of a network is the first dense one.

    Args:
        name: in the network.
        takes_samples: whether it is given the flattened samples as they are.
    """

    name: str
    takes_samples: bool


def first_dense_layer(network: nn.Module, shape: tuple[int, ...]) -> DenseLayer | None:
    """The dense layer with a bias that samples of a shape reach first; see `first_dense_entry`."""
    some = next(network.parameters())
    graded = torch.linspace(0, 1, math.prod(shape)).to(some).reshape(1, *shape)
    with torch.no_grad():
        entry = first_dense_entry(network, graded)
    return None if entry is None else DenseLayer(entry.layer, takes_samples(entry, graded))


def takes_samples(entry: Entry, inputs: Tensor) -> bool:
    """Whether the layer is given the flattened samples as they are."""
    return torch.equal(entry.embeddings, inputs.flatten(1))


@torch.no_grad()
def true_embeddings(network: nn.Module, inputs: np.ndarray) -> np.ndarray | None:
    """Embeddings of many victims' samples, a victim at a time.

    Args:
        network: in evaluation mode.
        inputs: Shape (V, N, *shape).

    Returns:
        Shape (V, N, E); None where the first dense layer is given the samples themselves, or there
        is none.
    """
    place = next(network.parameters()).device
    found: list[np.ndarray] = []
    for samples in torch.from_numpy(inputs):
        for some in batch_slices(network, samples):
            part = samples[some].to(place)
            entry = first_dense_entry(network, part)
            if entry is None or takes_samples(entry, part):
                return None
            found.append(entry.embeddings.cpu().numpy())
    return np.concatenate(found).reshape(*inputs.shape[:2], -1)


PROBED = 3


@dataclass(frozen=True)
class Classifier:
    """The layer of a network that gives the logits.

    Args:
        name: of the layer, in the network.
        layer: a dense layer with one output per class, or a convolution of 1 x 1 with as many
            channels, whose outputs are pooled.
        weight: name of its weight among the network's parameters; None where the layer computes
            its weight from other parameters (weight norm, pruning) or shares it.
        bias: likewise.
        gives_logits: whether its output is the logits, and nothing is done to it.
        features: its inputs on the probes, in the state of the network; Shape (M, ...).
    """

    name: str
    layer: nn.Module
    weight: str | None
    bias: str | None
    gives_logits: bool
    features: Tensor

    @property
    def parameters(self) -> list[str]:
        """Names of all parameters of the layer, in the layer."""
        return [name for name, _ in self.layer.named_parameters()]

    def dense_parameters(self) -> tuple[str, str]:
        """Names of weight and bias of a classifier that is a dense layer and has both.

        Raises:
            IncompatibleError: it is not, or it has not.
        """
        if not isinstance(self.layer, nn.Linear) or self.weight is None or self.bias is None:
            kind = type(self.layer).__name__
            raise IncompatibleError(
                f"its classifier, {kind} {self.name!r} with {' and '.join(self.parameters)}, is no "
                "dense layer with a weight and a bias of its own"
            )
        return self.weight, self.bias


@dataclass(frozen=True)
class _Pass:
    """One pass through a layer that could be the classifier."""

    name: str
    layer: nn.Module
    features: Tensor
    output: Tensor


@torch.enable_grad()
def find_classifier(network: nn.Module, shape: tuple[int, ...], classes: int) -> Classifier:
    """Find the classifier by running the network on probes.

    Of the layers with one output per class that the logits depend on, it is the last one that ran
    whose output is the logits; if there is none such, the last one that ran. Where a layer stands
    in the code, or whether there are other layers of its width, makes no difference.

    Args:
        network: in evaluation mode; left as it is.
        shape: of one sample.
        classes: number of outputs.

    Raises:
        IncompatibleError: the logits depend on no such layer.
    """
    logits, passes = _run(network, shape, classes)
    outputs = [each.output for each in passes] if logits.requires_grad else []
    slopes = torch.autograd.grad(logits.sum(), outputs, allow_unused=True) if outputs else ()
    reaching = [each for each, slope in zip(passes, slopes, strict=False) if slope is not None]
    if not reaching:
        raise IncompatibleError(
            f"it has no dense layer with {classes} outputs that its logits depend on"
        )
    direct = [each for each in reaching if torch.equal(each.output, logits)]
    found = (direct or reaching)[-1]
    return Classifier(
        name=found.name,
        layer=found.layer,
        weight=_own_parameter(network, found.layer, "weight"),
        bias=_own_parameter(network, found.layer, "bias"),
        gives_logits=bool(direct),
        features=found.features.detach(),
    )


def _run(network: nn.Module, shape: tuple[int, ...], classes: int) -> tuple[Tensor, list[_Pass]]:
    """Logits of probes, and every pass through a layer with one output per class, in order."""
    passes: list[_Pass] = []

    def keep(name: str, layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        attached = output if output.requires_grad else output.requires_grad_()
        passes.append(_Pass(name, layer, given[0], attached))

    some = next(network.parameters())
    probes = torch.linspace(0, 1, PROBED * math.prod(shape)).to(some).reshape(PROBED, *shape)
    with ExitStack() as stack:
        for name, layer in network.named_modules():
            if _outputs(layer) == classes:
                stack.enter_context(layer.register_forward_hook(partial(keep, name)))
        logits = network(probes.requires_grad_().clone())
    return logits, passes


def _outputs(layer: nn.Module) -> int | None:
    """Outputs of a layer that could be a classifier; None for all other layers."""
    if isinstance(layer, nn.Linear):
        return layer.out_features
    if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1):
        return layer.out_channels
    return None


def _own_parameter(network: nn.Module, layer: nn.Module, kind: str) -> str | None:
    """Name in the network of a layer's weight or bias, if that is a parameter of this layer alone.

    Args:
        network: that the layer is part of.
        layer: a layer.
        kind: "weight" or "bias".
    """
    parameter = dict(layer.named_parameters(recurse=False)).get(kind)
    owners = [
        module
        for module in network.modules()
        if any(value is parameter for value in module.parameters(recurse=False))
    ]
    names = [name for name, value in network.named_parameters() if value is parameter]
    return names[0] if len(owners) == 1 else None
