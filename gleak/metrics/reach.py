"""Which weights the samples of a client reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gleak.models.broadcast import load_network
from gleak.models.passes import passes
from gleak.runtime.seeding import stream, torch_stream

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset
    from gleak.artifacts.model import Model


def reached_weights(
    model: Model, data: Dataset, samples: int, seed: int
) -> dict[str, NDArray[np.bool_]]:
    """The weights whose gradient is not zero for every sample that is tried.

    A weight is reached if its input is not zero for some sample and what it adds to can change a
    logit: inputs that are always zero and neurons that are never active are not. One backward pass
    of a random combination of the logits tells, since gradients that are not zero do not cancel in
    it. Weights that are not reached show nothing of these samples in an update, so a server gains
    nothing by putting a path where it is not judged, but for samples unlike those tried: a neuron
    that is active for one sample in a thousand is most likely not tried. Layers that are frozen
    pass samples on and are tried like any other.

    Args:
        model: the parameters, those of its architecture.
        data: a client's, of the shape and with the classes of the model.
        samples: how many of its train split are tried, fewer where it has fewer.
        seed: of their draw.

    Returns:
        By parameter, of its Shape.

    Raises:
        ArtifactError: see `gleak.models.broadcast.load_network`.
    """
    network = load_network(model, "the parameters")
    tried = {name: each.requires_grad_() for name, each in _continuous(network)}
    labels, random = data.labels("train"), torch_stream(seed, "directions of logits")
    chosen = stream(seed, "samples tried").permutation(len(labels))[:samples]
    reached = {name: np.zeros(tuple(each.shape), dtype=bool) for name, each in tried.items()}
    for some in passes(len(chosen), data.shape):
        logits = network(torch.from_numpy(data.samples("train", chosen[some])))
        direction = torch.randn(logits.shape, generator=random)
        gradients = torch.autograd.grad(
            logits, list(tried.values()), direction, materialize_grads=True
        )
        for name, gradient in zip(tried, gradients, strict=True):
            reached[name] |= gradient.numpy() != 0
    return reached


def _continuous(network: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that have gradients, frozen or not."""
    return [(name, each) for name, each in network.named_parameters() if each.is_floating_point()]
