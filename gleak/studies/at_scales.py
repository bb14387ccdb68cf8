"""Values at each scale, computed when they are first used: a run needs one or two scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeVar

from gleak.core.settings import SCALES, Scale

T = TypeVar("T")


class AtScales(Mapping[str, T]):
    """Mapping from every scale to a value that is computed when it is first used.

    Args:
        compute: value at a scale.
    """

    def __init__(self, compute: Callable[[Scale], T]) -> None:
        self._compute = cache(compute)

    def __getitem__(self, scale: str) -> T:
        known = next((each for each in SCALES if each == scale), None)
        if known is None:
            raise KeyError(scale)
        return self._compute(known)

    def __iter__(self) -> Iterator[str]:
        return iter(SCALES)

    def __len__(self) -> int:
        return len(SCALES)

    def compute(self, scales: Sequence[Scale]) -> None:
        """Compute the values at some scales, so that their errors are raised now."""
        for scale in scales:
            self._compute(scale)

    def values_from(self, scales: Sequence[Scale]) -> Iterator[T]:
        """Yield the values at all scales, those at some scales first."""
        return map(self._compute, starting_with(scales))


def starting_with(scales: Sequence[Scale]) -> list[Scale]:
    """Return all scales, with these first."""
    return [*scales, *(scale for scale in SCALES if scale not in scales)]
