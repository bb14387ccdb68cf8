"""How strongly each element of a representation depends on the sample it is of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.models.embedding import Entry, features_before
from gleak.models.interaction import batch_slices
from gleak.models.memory_slices import memory_slices

Features = Callable[[Tensor], Tensor]
"""From samples, Shape (N, *shape), to their representations, Shape (N, E)."""


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Let all layers be in evaluation mode in the block: samples have no part in each other's."""
    training = [layer for layer in network.modules() if layer.training]
    network.eval()
    try:
        yield
    finally:
        for layer in training:
            layer.training = True


def sensitivities(network: nn.Module, entry: Entry, inputs: Tensor, probes: int | None) -> Tensor:
    """Of each element r_i of a representation the sum over samples X of ||dr_i / dX|| / |r_i|.

    Args:
        network: in evaluation mode.
        entry: the layer whose input is the representation, passed by any samples.
        inputs: Shape (N, *shape).
        probes: random directions that derivatives are estimated from; None: they are exact, as
            they are where there are no more elements than that, since it costs no more.

    Returns:
        Shape (E), in double precision. A sample in which an element is zero adds nothing to it.
    """
    features, elements = features_before(network, entry.layer), entry.embeddings.shape[1]
    total = inputs.new_zeros(elements, dtype=torch.float64)
    for part in batch_slices(network, inputs):
        samples = inputs[part]
        with torch.no_grad():
            sizes = features(samples).abs().double()
        if probes is None or elements <= probes:
            lengths = exact_lengths(features, samples)
        else:
            lengths = estimated_lengths(features, samples, probes)
        total += torch.where(sizes == 0, 0, lengths / sizes).sum(0)
    return total


def exact_lengths(features: Features, samples: Tensor) -> Tensor:
    """Lengths of the derivatives of each element by its sample, ||dr_i / dX||.

    Args:
        features: differentiable.
        samples: Shape (N, *shape).

    Returns:
        Shape (N, E).
    """
    attached = samples.detach().requires_grad_()
    values = features(attached)
    elements = values.shape[1]
    found = []
    for some in memory_slices(elements, samples.shape):
        chosen = torch.arange(elements, device=values.device)[some]
        one_hot = functional.one_hot(chosen, elements).to(values)
        (slopes,) = torch.autograd.grad(
            values,
            attached,
            one_hot[:, None].expand(-1, *values.shape),
            retain_graph=True,
            is_grads_batched=True,
        )
        found.append(torch.linalg.vector_norm(slopes.flatten(2), dim=2))
    return torch.cat(found).T


def estimated_lengths(features: Features, samples: Tensor, probes: int) -> Tensor:
    """As `exact_lengths`, from random directions, each of which serves all elements at once.

    A direction v of independent signs has E[(J v)_i^2] = ||J_i||^2 for the Jacobian J. The relative
    deviation of a length is 1 / sqrt(2 probes) or less; of a row with one entry it is 0. J v is the
    derivative of u^T J v by u, of any u, which takes no forward differentiation. The random numbers
    are torch's own, of the CPU so that a GPU changes no draw.

    Args:
        features: twice differentiable, as piecewise linear ones are.
        samples: Shape (N, *shape).
        probes: how many directions.

    Returns:
        Shape (N, E).
    """
    attached = samples.detach().requires_grad_()
    values = features(attached)
    weights = torch.zeros_like(values, requires_grad=True)
    (slopes,) = torch.autograd.grad(values, attached, weights, create_graph=True)
    squares = torch.zeros_like(values)
    for _ in range(probes):
        signs = 2 * torch.randint(2, samples.shape).to(samples) - 1
        (change,) = torch.autograd.grad(slopes, weights, signs, retain_graph=True)
        squares += change.square()
    return (squares / probes).sqrt()


def at_least_percentile(values: Tensor, percentile: float) -> Tensor:
    """Which values are not below a percentile of them all, interpolated linearly.

    Args:
        values: Shape (E).
        percentile: in [0, 100).
    """
    return values >= torch.quantile(values, percentile / 100)
