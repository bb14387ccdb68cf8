"""Batches cut into slices that fit into memory, where samples do not interact.

Samples interact, that is, change each other's logits, in networks that normalise by the batch or
compare samples. Such a batch must not be cut, nor mixed with another client's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from weakref import WeakKeyDictionary

from gleak.core.lazy import torch
from gleak.models.parameters import double_copy, dtype_of, random_samples
from gleak.models.stochastic import stochastic_layers
from gleak.models.tracing import failing_layer, trace

VALUES = 256 * 3 * 32 * 32
"""Largest number of input values that are processed at once."""
SAMPLES = 4
DOUBLE_ROUNDING, SINGLE_ROUNDING = 1e-9, 1e-4
"""Largest difference that is due to rounding, relative to the largest magnitude."""
_MIXING_LAYERS: WeakKeyDictionary[torch.nn.Module, dict[bool, str | None]] = WeakKeyDictionary()
"""Results of `interacting_layer` by network, in training mode and in evaluation mode."""


def memory_slices(samples: int, shape: Sequence[int]) -> Iterator[slice]:
    """Return slices of samples of at most `VALUES` input values, but at least one sample, each."""
    size = max(1, VALUES // prod(shape))
    return (slice(start, start + size) for start in range(0, samples, size))


def batch_slices(network: torch.nn.Module, inputs: torch.Tensor) -> Sequence[slice]:
    """Return slices of a batch, Shape (N, *shape), that may pass through a network one by one.

    They are those of `memory_slices`, but a single one if samples interact or the network is in
    training mode.
    """
    parts = list(memory_slices(len(inputs), inputs.shape[1:]))
    if len(parts) == 1:
        return parts
    whole = network.training or interacting_layer(network, tuple(inputs.shape[1:])) is not None
    return [slice(None)] if whole else parts


def interacting_layer(network: torch.nn.Module, shape: tuple[int, ...]) -> str | None:
    """Return the name of the first layer that mixes samples, "" for the network's own forward.

    Random samples pass through a copy of the network together and one by one, with stochastic
    layers in evaluation mode. None: no logit depends on other samples. Results are cached.
    """
    known = _MIXING_LAYERS.setdefault(network, {})
    if network.training not in known:
        known[network.training] = _find(network, random_samples(network, SAMPLES, shape))
    return known[network.training]


def _find(network: torch.nn.Module, samples: torch.Tensor) -> str | None:
    copied = double_copy(network, samples)
    samples = samples.to(dtype_of(copied))
    for name in stochastic_layers(network, samples.to(dtype_of(network))):
        copied.get_submodule(name).training = False
    if failure := failing_layer(copied, samples[:1]):
        return failure[0]
    whole, *single = (trace(copied, batch) for batch in (samples, *samples.split(1)))
    if not _differ(whole[-1].output, [passes[-1].output for passes in single]):
        return None
    for together, *alone in zip(whole, *single, strict=False):
        if _differ(together.output, [each.output for each in alone]) and not _differ(
            together.inputs, [each.inputs for each in alone]
        ):
            return together.name
    return ""


def _differ(whole: torch.Tensor | None, single: Sequence[torch.Tensor | None]) -> bool:
    """Return True if values of a batch have rows that differ from those of single samples."""
    rows = [row for row in single if row is not None]
    if whole is None or len(rows) != len(whole) or any(r.shape != whole[:1].shape for r in rows):
        return False
    rounding = DOUBLE_ROUNDING if whole.dtype == torch.float64 else SINGLE_ROUNDING
    largest = rounding * whole.abs().max()
    return bool((whole - torch.cat(rows)).abs().max() > largest)
