"""Gradients of a client's samples at broadcast parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.lazy import torch
from gleak.metrics.audits.weight_matrices import Reach
from gleak.models.batching import memory_slices
from gleak.runtime.seeding import stream, torch_stream


def measure_reach(
    network: torch.nn.Module, data: Dataset, samples: int, seed: int
) -> dict[str, Reach]:
    """Measure the gradients and influences of samples in the rows and columns of every layer.

    An input that is always zero, or a neuron that is never active, has no gradient for any loss.
    One backward pass of a random combination of the logits reveals this, since nonzero gradients do
    not cancel in it. Frozen layers pass samples on and are measured like any other.

    Args:
        network: with the received parameters, in evaluation mode; its parameters are not changed.
        data: a client's data, of the shape and with the classes of the model.
        samples: number of samples drawn from its train split, fewer if it has fewer.
        seed: seed of the draw.

    Returns:
        By parameter that has rows and columns and can have a gradient.
    """
    tried = _matrices(network)
    labels, random = data.labels("train"), torch_stream(seed, "directions of logits")
    chosen = stream(seed, "samples tried").permutation(len(labels))[:samples]
    found: dict[str, Reach] = {}
    for batch in memory_slices(len(chosen), data.shape):
        logits = network(torch.from_numpy(data.samples("train", chosen[batch])))
        direction = torch.randn(logits.shape, generator=random)
        for name, reach in _reaches(tried, logits, direction):
            found[name] = found[name] | reach if name in found else reach
    maximum = max((reach.largest for reach in found.values()), default=0.0)
    return {name: replace(reach, network_maximum=maximum) for name, reach in found.items()}


def _matrices(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters with rows and columns that can have gradients, frozen or not."""
    return {
        name: each.requires_grad_()
        for name, each in network.named_parameters()
        if each.is_floating_point() and each.ndim > 1 and each.numel()
    }


def _reaches(
    tried: dict[str, torch.Tensor], logits: torch.Tensor, direction: torch.Tensor
) -> Iterator[tuple[str, Reach]]:
    along = _along(logits, direction)
    gradients = torch.autograd.grad(along, list(tried.values()), materialize_grads=True)
    for (name, each), gradient in zip(tried.items(), gradients, strict=True):
        weights, slopes = (
            values.detach().reshape(len(values), -1).float().numpy() for values in (each, gradient)
        )
        yield name, Reach.from_gradients(weights, slopes)


def _along(logits: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Compute the product of logits and a direction, whose gradient is that of the logits along it.

    torch (2.13) imports sympy, 0.4 s, when it differentiates along a direction that it is given.
    """
    return (logits * direction).sum()


def gradient_norms(
    network: torch.nn.Module, data: Dataset, samples: int, seed: int
) -> dict[str, np.ndarray]:
    """Compute gradient norms of each sample, for its cross-entropy and for a change of the logits.

    Args:
        network: with the received parameters, in evaluation mode; its parameters are not changed.
        data: a client's data, of the shape and with the classes of the model.
        samples: number of samples drawn from its train split, fewer if it has fewer.
        seed: seed of the draw, and of the change of the logits: a direction that all samples share,
            of sum zero, since adding a constant to all logits changes no loss.

    Returns:
        By parameter that requires a gradient; Shape (2, N): first of cross-entropy, per unit of its
        gradient at the logits, then of the direction, which does not depend on the label. Samples
        whose loss has no gradient are left out.
    """
    labels = data.labels("train")
    random = stream(seed, "audited samples")
    chosen = random.choice(len(labels), min(samples, len(labels)), replace=False)
    inputs = torch.from_numpy(data.samples("train", chosen))
    trained = {name: each for name, each in network.named_parameters() if each.requires_grad}
    if not trained:
        return {}
    change = torch.randn(1, data.classes, generator=torch_stream(seed, "change of the logits"))
    norms = [
        _norms(network, list(trained.values()), sample, int(label), change - change.mean())
        for sample, label in zip(inputs.split(1), labels[chosen], strict=True)
    ]
    kept = np.array([each for each in norms if each]).reshape(-1, 2, len(trained))
    return dict(zip(trained, kept.transpose(2, 1, 0), strict=True))


def _norms(
    network: torch.nn.Module,
    trained: list[torch.Tensor],
    sample: torch.Tensor,
    label: int,
    change: torch.Tensor,
) -> list[list[float]]:
    """Compute the norms of one sample; empty if the softmax is exactly one-hot at the label."""
    logits = network(sample)
    direction = torch.nn.functional.softmax(logits.detach().double(), dim=1)
    direction[:, label] = -direction[:, torch.arange(direction.shape[1]) != label].sum()
    if not (length := direction.norm()):
        return []
    along = [_along(logits, each.to(logits.dtype)) for each in (direction / length, change)]
    found = [
        torch.autograd.grad(each, trained, retain_graph=True, materialize_grads=True)
        for each in along
    ]
    return [[float(gradient.norm()) for gradient in gradients] for gradients in found]
