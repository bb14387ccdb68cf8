"""Batch normalisation: statistics of its inputs, and networks that normalise by the batch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.batching import batch_slices, interacting_layer
from gleak.models.parameters import as_inputs, random_samples, shared_copy
from gleak.models.tracing import describe_layer, failing_layer, first_argument

PROBES = 2
"""Samples of a probe; batch normalisation by the batch needs two."""
TRAINING = "training"
KEPT = "broadcast_mean", "broadcast_var"
"""Buffers with the running statistics of a layer that normalises by the batch."""

if TYPE_CHECKING:
    BatchNorm = torch.nn.modules.batchnorm._BatchNorm


@dataclass(frozen=True)
class InputStatistics:
    """Statistics of a batch of each victim at the input of a batch normalisation layer.

    They are of each channel, over samples and positions, Shape (V, C) each; the variance is without
    Bessel's correction.
    """

    layer: BatchNorm
    mean: torch.Tensor
    variance: torch.Tensor


def input_statistics(network: torch.nn.Module, inputs: torch.Tensor) -> list[InputStatistics]:
    """Compute the statistics that the samples of each victim have in batch normalisation layers.

    Victims, Shape (V, N, *shape), are computed together only where samples do not interact. There
    is one entry for each pass through such a layer, in order; differentiable.
    """
    if interacting_layer(network, tuple(inputs.shape[2:])) is None:
        return _statistics_together(network, inputs)
    alone = [_statistics_together(network, samples[None]) for samples in inputs]
    return [
        InputStatistics(
            victims[0].layer,
            torch.cat([statistics.mean for statistics in victims]),
            torch.cat([statistics.variance for statistics in victims]),
        )
        for victims in zip(*alone, strict=True)
    ]


def batch_norm_passes(network: torch.nn.Module, shape: tuple[int, ...]) -> list[BatchNorm]:
    """Return the batch normalisation layers that run, in order, once for each pass."""
    probe = random_samples(network, PROBES, shape)[None]
    with torch.no_grad():
        return [statistics.layer for statistics in _statistics_together(network, probe)]


def batch_statistics(network: torch.nn.Module, inputs: np.ndarray) -> np.ndarray:
    """Compute the statistics of each victim's samples, Shape (V, N, *shape), in all passes.

    Returns:
        Shape (V, 2, K): means, then variances, of the channels of all passes of
        `batch_norm_passes` in a row; K is zero without such layers.
    """
    rows = []
    with torch.no_grad():
        for samples in (as_inputs(network, samples) for samples in inputs):
            empty = samples.new_zeros(0, dtype=torch.float64)
            first = second = torch.zeros((), dtype=torch.float64)
            for indices in batch_slices(network, samples):
                chunk = samples[indices]
                passes = _statistics_together(network, chunk[None])
                mean = torch.cat([empty, *(one.mean[0].double() for one in passes)])
                variance = torch.cat([empty, *(one.variance[0].double() for one in passes)])
                share = len(chunk) / len(samples)
                first, second = first + share * mean, second + share * (variance + mean.square())
            rows.append(torch.stack([first, second - first.square()]))
        return torch.stack(rows).float().cpu().numpy()


def _statistics_together(network: torch.nn.Module, inputs: torch.Tensor) -> list[InputStatistics]:
    passes: list[InputStatistics] = []

    def keep(layer: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        values = first_argument(given, named).unflatten(0, (len(inputs), -1))
        values = values.transpose(1, 2).flatten(2)
        passes.append(InputStatistics(layer, values.mean(2), values.var(2, unbiased=False)))

    with ExitStack() as stack:
        for layer in batch_norm_layers(network):
            stack.enter_context(layer.register_forward_pre_hook(keep, with_kwargs=True))
        network(inputs.flatten(0, 1))
    return passes


def batch_norm_layers(network: torch.nn.Module) -> list[BatchNorm]:
    base = torch.nn.modules.batchnorm._BatchNorm
    return [layer for layer in network.modules() if isinstance(layer, base)]


def run_by_clients(network: torch.nn.Module, batch_norm: str | None) -> torch.nn.Module:
    """Return a network as clients run it: itself, or a copy in evaluation mode with its parameters.

    With batch_norm="training" layers normalise by the statistics of the batch. The running
    statistics that a client would update have no influence on its gradients, and stay as they were
    broadcast.
    """
    if batch_norm != TRAINING:
        return network
    copied = shared_copy(network)
    for layer in batch_norm_layers(copied):
        if layer.running_mean is not None:
            for name, value in zip(KEPT, (layer.running_mean, layer.running_var), strict=True):
                layer.register_buffer(name, value)
            layer.running_mean = layer.running_var = None
    return copied


def running_statistics(layer: BatchNorm) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the running mean and variance of a layer, Shape (C) each, however it normalises."""
    if layer.running_mean is not None and layer.running_var is not None:
        return layer.running_mean, layer.running_var
    mean, variance = (getattr(layer, name, None) for name in KEPT)
    return None if mean is None or variance is None else (mean, variance)


def has_trained_statistics(network: torch.nn.Module) -> bool:
    """Return True if a layer's running mean is not zero, as it is before training."""
    known = map(running_statistics, batch_norm_layers(network))
    return any(bool(statistics[0].any()) for statistics in known if statistics)


def check_batch(network: torch.nn.Module, shape: tuple[int, ...], samples: int) -> None:
    """Check that a network can normalise by the statistics of a batch.

    Raises:
        IncompatibleError: no batch normalisation layer runs, or one needs more samples.
    """
    if not batch_norm_passes(network, shape):
        raise IncompatibleError(
            "no batch normalisation layer runs in this model; leave out batch_norm=training"
        )
    copied = run_by_clients(network, TRAINING)
    if failure := failing_layer(copied, random_samples(copied, samples, shape)):
        name, error = failure
        raise IncompatibleError(
            f"{describe_layer(copied, name)} cannot normalise by a batch of {samples} ({error}); "
            "use more samples, or leave out batch_norm=training"
        )
