"""How many samples go through a network at once where they have nothing to do with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

VALUES = 256 * 3 * 32 * 32


def memory_slices(samples: int, shape: Sequence[int]) -> Iterator[slice]:
    """Ranges of samples, each of `VALUES` input values at most and one sample at least.

    Args:
        samples: how many there are.
        shape: of one of them.
    """
    size = max(1, VALUES // prod(shape))
    return (slice(start, start + size) for start in range(0, samples, size))
