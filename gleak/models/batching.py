"""x"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gleak.models.parameters import double_copy, dtype_of, random_samples
from gleak.models.stochastic import stochastic_layers
from gleak.models.tracing import failing_layer, trace

VALUES = 256 * 3 * 32 * 32


def memory_slices(samples: int, shape: Sequence[int]) -> Iterator[slice]:
    """Ranges of samples, each of `VALUES` input values at most and one sample at least.

    Args:
        samples: how many there are.
        shape: of one of them.
    """
    size = max(1, VALUES // prod(shape))
    return (slice(start, start + size) for start in range(0, samples, size))


SAMPLES = 4
_FOUND: WeakKeyDictionary[nn.Module, dict[bool, str | None]] = WeakKeyDictionary()
"""The layers of the networks that have been examined, in training mode and out of it."""
ROUNDING = {torch.float64: 1e-9}
SINGLE_ROUNDING = 1e-4
"""Largest difference that is rounding, relative to the largest magnitude."""


def batch_slices(network: nn.Module, inputs: Tensor) -> Sequence[slice]:
    """Return the parts of a batch that may go through a network one after the other.

    Args:
        network: in the mode it is to run in.
        inputs: Shape (N, *shape).

    Returns:
        Parts as `memory_slices` makes them; one of all samples where they interact,
        and for a network in training mode.
    """
    parts = list(memory_slices(len(inputs), inputs.shape[1:]))
    if len(parts) == 1:
        return parts
    whole = network.training or interacting_layer(network, tuple(inputs.shape[1:])) is not None
    return [slice(None)] if whole else parts


def interacting_layer(network: nn.Module, shape: tuple[int, ...]) -> str | None:
    """Return the name of the layer that mixes samples first, "" for the network's own forward.

    Random samples go through a copy of the network together and one by one, without what layers
    draw. What is found is remembered.

    Args:
        network: in the mode it is to run in; left as it is.
        shape: of a sample.

    Returns:
        None where no logit depends on other samples.
    """
    known = _FOUND.setdefault(network, {})
    if network.training not in known:
        known[network.training] = _find(network, random_samples(network, SAMPLES, shape))
    return known[network.training]


def _find(network: nn.Module, samples: Tensor) -> str | None:
    copied = double_copy(network, samples)
    samples = samples.to(dtype_of(copied))
    for name in stochastic_layers(network, samples.to(dtype_of(network))):
        copied.get_submodule(name).training = False
    if failure := failing_layer(copied, samples[:1]):
        return failure[0]
    whole, *single = (trace(copied, some) for some in (samples, *samples.split(1)))
    if not _differ(whole[-1].output, [passes[-1].output for passes in single]):
        return None
    for together, *alone in zip(whole, *single, strict=False):
        if _differ(together.output, [each.output for each in alone]) and not _differ(
            together.given, [each.given for each in alone]
        ):
            return together.name
    return ""


def _differ(whole: Tensor | None, single: Sequence[Tensor | None]) -> bool:
    """Whether the rows of a batch's values are not those of its samples' own; if they are rows."""
    rows = [row for row in single if row is not None]
    if whole is None or len(rows) != len(whole) or any(r.shape != whole[:1].shape for r in rows):
        return False
    largest = ROUNDING.get(whole.dtype, SINGLE_ROUNDING) * whole.abs().max()
    return bool((whole - torch.cat(rows)).abs().max() > largest)
