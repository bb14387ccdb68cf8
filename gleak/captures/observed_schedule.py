"""Schedules recognised from the learning rates of a round's steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gleak.optimizers.schedules import Constant, Cosine, Linear, Listed, Schedule, Step

TOLERANCE = 1e-9
"""Largest difference of factors that count as equal, since schedulers of torch add up rounding."""
DIGITS = 7
"""Of listed factors, since they become part of a path."""
LONGEST = 20
"""Largest duration of a cosine that is recognised, in rounds."""


def schedule_of(rates: Sequence[float]) -> tuple[float, Schedule]:
    """Return the reference learning rate of a round and the schedule of its steps' rates.

    The reference is the first rate, or the largest if that is zero.

    Args:
        rates: of all steps, not all zero.
    """
    reference = float(f"{rates[0] or max(rates):.12g}")
    factors = [rate / reference for rate in rates]
    for schedule in _candidates(factors):
        if _close(schedule.factors(len(factors)), factors):
            return reference, schedule
    return reference, Listed.of([float(f"{factor:.{DIGITS}g}") for factor in factors])


def _candidates(factors: Sequence[float]) -> Iterator[Schedule]:
    """Return the schedules that some of the factors suggest, the simplest first."""
    yield Constant()
    if len(factors) < 2 or not _close(factors[:1], [1]):
        return
    steps, last = len(factors), factors[-1]
    change = next((k for k, factor in enumerate(factors) if not _close([factor], [1])), None)
    if change is not None and 0 < factors[change] <= 1:
        yield Step(every=change, factor=_rounded(factors[change]))
    settled = 1 + max((k for k in range(steps) if not _close([factors[k]], [last])), default=-1)
    slope = factors[1] - 1
    yield from _ending(Linear, None, 1 + slope * steps)
    yield from _ending(Linear, settled, last)
    yield from _ending(Cosine, settled, last)
    yield from _cosine(factors)


def _cosine(factors: Sequence[float]) -> Iterator[Schedule]:
    """Return the cosine that ends in the round or later, as two of the factors determine it.

    With 1 - factor(k) = (1 - end) (1 - cos(pi k / over)) / 2, the changes until the steps 2 m and m
    have the ratio 2 (1 + cos(pi m / over)); m is as large as the round allows, for its digits.
    """
    steps, middle = len(factors), (len(factors) - 1) // 2
    if middle == 0 or _close([factors[middle]], [1]):
        return
    cosine = (1 - factors[2 * middle]) / (1 - factors[middle]) / 2 - 1
    if not -1 < cosine < 1:
        return
    over = round(math.pi * middle / math.acos(cosine))
    if steps <= over <= LONGEST * steps:
        share = (1 + math.cos(math.pi * middle / over)) / 2
        end = (factors[middle] - share) / (1 - share)
        yield from _ending(Cosine, None if over == steps else over, end)


def _ending(kind: type[Linear | Cosine], over: int | None, end: float) -> Iterator[Schedule]:
    """Return a schedule with this last factor, if it can have one."""
    if (over is None or over >= 1) and _rounded(end) >= 0:
        yield kind(end=abs(_rounded(end)), over=over)


def _rounded(factor: float) -> float:
    """Round a factor to the digits that are not rounding of torch's schedulers."""
    return round(float(f"{factor:.12g}"), 10)


def _close(ones: Sequence[float], others: Sequence[float]) -> bool:
    return all(abs(a - b) <= TOLERANCE for a, b in zip(ones, others, strict=True))
