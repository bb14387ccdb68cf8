"""Which weights the samples of a client reach, and which of them have influence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gleak.metrics.judged import Reach
from gleak.models.batching import memory_slices
from gleak.models.broadcast import load_network
from gleak.runtime.seeding import stream, torch_stream

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset
    from gleak.artifacts.model import Model


def reaches(model: Model, data: Dataset, samples: int, seed: int) -> dict[str, Reach]:
    """What samples make of the rows and columns of every layer.

    An input that is always zero, or a neuron that is never active, has no gradient whatever the
    loss. One backward pass of a random combination of the logits tells, since gradients that are
    not zero do not cancel in it. Layers that are frozen pass samples on and are tried like any
    other.

    Args:
        model: the parameters, those of its architecture.
        data: a client's, of the shape and with the classes of the model.
        samples: how many of its train split are tried, fewer where it has fewer.
        seed: of their draw.

    Returns:
        By parameter that has rows and columns and can have a gradient.

    Raises:
        ArtifactError: see `gleak.models.broadcast.load_network`.
    """
    network = load_network(model, "the parameters")
    tried = _matrices(network)
    labels, random = data.labels("train"), torch_stream(seed, "directions of logits")
    chosen = stream(seed, "samples tried").permutation(len(labels))[:samples]
    found: dict[str, Reach] = {}
    for some in memory_slices(len(chosen), data.shape):
        logits = network(torch.from_numpy(data.samples("train", chosen[some])))
        direction = torch.randn(logits.shape, generator=random)
        for name, reach in _reaches(tried, logits, direction):
            found[name] = found[name] | reach if name in found else reach
    most = max((reach.largest for reach in found.values()), default=0.0)
    return {name: replace(reach, most=most) for name, reach in found.items()}


def _matrices(network: nn.Module) -> dict[str, Tensor]:
    """The parameters with rows and columns that can have gradients, frozen or not."""
    return {
        name: each.requires_grad_()
        for name, each in network.named_parameters()
        if each.is_floating_point() and each.ndim > 1 and each.numel()
    }


def _reaches(
    tried: dict[str, Tensor], logits: Tensor, direction: Tensor
) -> Iterator[tuple[str, Reach]]:
    gradients = torch.autograd.grad(logits, list(tried.values()), direction, materialize_grads=True)
    for (name, each), gradient in zip(tried.items(), gradients, strict=True):
        weights, slopes = (
            values.detach().flatten(1).float().numpy() for values in (each, gradient)
        )
        yield name, Reach.of(weights, slopes)
