"""What reaches the first dense layer of a network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Entry:
    """The first dense layer with a bias that a network passes, and what it is given.

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
    once = [entry.layer for entry in passed].count(passed[0].layer) == 1 if passed else False
    return passed[0] if once and passed[0].embeddings.ndim == 2 else None


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
    found = []
    for samples in torch.from_numpy(inputs):
        entry = first_dense_entry(network, samples.to(place))
        if entry is None or takes_samples(entry, samples.to(place)):
            return None
        found.append(entry.embeddings.cpu().numpy())
    return np.stack(found)
