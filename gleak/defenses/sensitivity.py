"""Sensitivity of the elements of a representation to the input sample, for Soteria."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gleak.core.lazy import torch
from gleak.models.batching import batch_slices, memory_slices
from gleak.models.layer_search import DenseInput, features_before

Features = Callable[["torch.Tensor"], "torch.Tensor"]
"""Function from samples, Shape (N, *shape), to their representations, Shape (N, E)."""


@contextmanager
def evaluating(network: torch.nn.Module) -> Iterator[None]:
    """Set all layers to evaluation mode in the block, so that samples do not interact."""
    training = [layer for layer in network.modules() if layer.training]
    network.eval()
    try:
        yield
    finally:
        for layer in training:
            layer.training = True


def sensitivities(
    network: torch.nn.Module, entry: DenseInput, inputs: torch.Tensor, probes: int | None
) -> torch.Tensor:
    """Compute the sum of ||dr_i / dX|| / |r_i| over samples X for each element r_i.

    Args:
        network: in evaluation mode.
        entry: layer whose input is the representation, for any samples.
        inputs: Shape (N, *shape).
        probes: random directions to estimate derivatives; None: exact. With at most that many
            elements derivatives are exact too, at no higher cost.

    Returns:
        Shape (E), in double precision. A sample in which an element is zero adds nothing to it.
    """
    features, elements = features_before(network, entry.layer), entry.embeddings.shape[1]
    total = inputs.new_zeros(elements, dtype=torch.float64)
    for chunk in batch_slices(network, inputs):
        samples = inputs[chunk]
        with torch.no_grad():
            magnitudes = features(samples).abs().double()
        if probes is None or elements <= probes:
            norms = exact_norms(features, samples)
        else:
            norms = estimated_norms(features, samples, probes)
        total += torch.where(magnitudes == 0, 0, norms / magnitudes).sum(0)
    return total


def exact_norms(features: Features, samples: torch.Tensor) -> torch.Tensor:
    """Compute the norm of the derivative of each element by its sample, ||dr_i / dX||.

    Args:
        features: differentiable.
        samples: Shape (N, *shape).

    Returns:
        Shape (N, E).
    """
    attached = samples.detach().requires_grad_()
    values = features(attached)
    elements = values.shape[1]
    norms = []
    for chunk in memory_slices(elements, samples.shape):
        indices = torch.arange(elements, device=values.device)[chunk]
        one_hot = torch.nn.functional.one_hot(indices, elements).to(values)
        (derivatives,) = torch.autograd.grad(
            values,
            attached,
            one_hot[:, None].expand(-1, *values.shape),
            retain_graph=True,
            is_grads_batched=True,
        )
        norms.append(torch.linalg.vector_norm(derivatives.flatten(2), dim=2))
    return torch.cat(norms).T


def estimated_norms(features: Features, samples: torch.Tensor, probes: int) -> torch.Tensor:
    """Estimate the norms of `exact_norms` from random directions, each shared by all elements.

    A direction v of independent signs has E[(J v)_i^2] = ||J_i||^2 for the Jacobian J. The relative
    standard deviation of a norm is at most 1 / sqrt(2 probes), and 0 for a row with one entry. J v
    is the derivative of u^T J v by u, for any u, which needs no forward-mode differentiation.
    Random numbers are drawn from torch's global CPU generator, so that the device changes no draw.

    Args:
        features: twice differentiable, as piecewise linear functions are.
        samples: Shape (N, *shape).
        probes: number of directions.

    Returns:
        Shape (N, E).
    """
    attached = samples.detach().requires_grad_()
    values = features(attached)
    weights = torch.zeros_like(values, requires_grad=True)
    (derivatives,) = torch.autograd.grad(values, attached, weights, create_graph=True)
    squares = torch.zeros_like(values)
    for _ in range(probes):
        signs = 2 * torch.randint(2, samples.shape).to(samples) - 1
        (change,) = torch.autograd.grad(derivatives, weights, signs, retain_graph=True)
        squares += change.square()
    return (squares / probes).sqrt()


def at_least_percentile(values: torch.Tensor, percentile: float) -> torch.Tensor:
    """Return the mask of values not below a percentile, which is interpolated linearly.

    Args:
        values: Shape (E).
        percentile: in [0, 100).
    """
    return values >= torch.quantile(values, percentile / 100)
