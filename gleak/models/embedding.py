"""What reaches the dense layers of a network, the first above all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gleak.models.interaction import batch_slices


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
