"""Confidence intervals of medians, means and success rates, and of their differences.

Every value is that of one batch of true samples (`gleak.figures.statistics.average_batches`);
batches are drawn independently. Intervals cover other victims of the same model and, in grids with
several ``networks``, other networks. Verdicts are on success rates and medians, whose intervals
hold their confidence whatever the values are distributed like; figures show means.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from gleak.core.lazy import scipy

CONFIDENCE = 0.95
RESAMPLES = 4999
SMALLEST_SPREAD = 0.25
"""Part of the standard error of the values below which that of a resample does not count as less:
one of nearly equal values would have a studentised mean without bound."""
POWER = 0.8
FEWEST, MOST, SHOWN = 6, 10**6, 3
"""Batches below which no verdict is given, above which no number of batches is, and below which
figures show no interval."""


class Interval(NamedTuple):
    """Ends of a confidence interval; NaN if there is none."""

    low: float
    high: float


UNBOUNDED = Interval(-math.inf, math.inf)
"""Interval of values that are too few to exclude anything."""


class Estimate(ABC):
    """A median, mean or rate over batches, or a difference of two."""

    @property
    @abstractmethod
    def value(self) -> float:
        """The estimate."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of batches; the smaller one of two groups."""

    @abstractmethod
    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Compute the confidence interval; NaN if the values of one batch say nothing of others."""

    @abstractmethod
    def at(self, n: int, confidence: float) -> Interval:
        """Compute the interval to be expected of n batches with the same means and variances."""

    @abstractmethod
    def error_at(self, n: int) -> float:
        """Compute the standard error to be expected of n batches with the same variances."""

    def planned(self, n: int, confidence: float = CONFIDENCE) -> Interval:
        """Compute the interval that n batches have or are within with a probability of `POWER`.

        Of other batches, its ends are at most 0.84 standard errors farther out in 80% of all cases.
        """
        low, high = self.at(n, confidence)
        farther = scipy.stats.norm.ppf(POWER) * self.error_at(n)
        return Interval(float(low - farther), float(high + farther))


@dataclass(frozen=True)
class Means(Estimate):
    """Mean of one group, or the mean of the first minus that of an independent second."""

    groups: tuple[np.ndarray, ...]
    """Values by batch, Shape (n); of paired groups, their differences."""

    @property
    def value(self) -> float:
        return float(_mean(*self.groups))

    @property
    def n(self) -> int:
        return min(map(len, self.groups))

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Compute the studentised bootstrap interval (Efron and Tibshirani 1993, section 12.5).

        Of percentile, basic, BCa and studentised intervals, only the last covered skewed values of
        ten batches nearly as often as stated; see docs/guide/verdicts.md. Below `FEWEST` batches
        there are too few different resamples, and the interval is Student's.
        """
        if self.n < FEWEST:
            return self.at(self.n, confidence)
        mean, error = self.value, float(_error(*self.groups))
        if error == 0:
            return Interval(mean, mean)

        def studentised(*resampled: np.ndarray, axis: int = -1) -> np.ndarray:
            errors = np.maximum(_error(*resampled, axis=axis), SMALLEST_SPREAD * error)
            return np.asarray((_mean(*resampled, axis=axis) - mean) / errors)

        drawn = scipy.stats.bootstrap(
            self.groups,
            studentised,
            n_resamples=RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(0),
        ).bootstrap_distribution
        below, above = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
        return Interval(float(mean - above * error), float(mean - below * error))

    def at(self, n: int, confidence: float) -> Interval:
        """Compute Student's interval; NaN for a single batch, whose variance is unknown."""
        half = scipy.stats.t.ppf((1 + confidence) / 2, n - 1) * self.error_at(n)
        return Interval(float(self.value - half), float(self.value + half))

    def error_at(self, n: int) -> float:
        if self.n < 2:
            return np.nan
        return float(sum(group.var(ddof=1) / n for group in self.groups) ** 0.5)


def _mean(*groups: np.ndarray, axis: int = -1) -> np.ndarray:
    """Compute the mean of the first group minus that of the second, if there is one."""
    first, *others = [group.mean(axis=axis) for group in groups]
    return np.asarray(first - sum(others))


def _error(*groups: np.ndarray, axis: int = -1) -> np.ndarray:
    """Compute the standard error of `_mean`."""
    return np.sqrt(sum(group.var(axis=axis, ddof=1) / group.shape[axis] for group in groups))


@dataclass(frozen=True)
class Medians(Estimate):
    """Median of one group, or that of the first minus that of an independent second."""

    groups: tuple[np.ndarray, ...]
    """Values by batch, Shape (n); of paired groups, their differences."""

    @property
    def value(self) -> float:
        first, *others = map(np.median, self.groups)
        return float(first - sum(others))

    @property
    def n(self) -> int:
        return min(map(len, self.groups))

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Compute the interval whose ends are order statistics, as the sign test has it.

        It covers the median of any distribution with at least this confidence; of two groups, both
        medians (Bonferroni). Unbounded if there are too few batches, as below six at 95%.
        """
        level = 1 - (1 - confidence) / len(self.groups)
        return _difference(*(median_interval(group, level) for group in self.groups))

    def at(self, n: int, confidence: float) -> Interval:
        level = 1 - (1 - confidence) / len(self.groups)
        rank = _median_rank(n, level)
        if rank < 1:
            return UNBOUNDED
        shares = [rank / (n + 1), 1 - rank / (n + 1)]
        ends = (np.quantile(group, shares, method="weibull") for group in self.groups)
        return _difference(*(Interval(*map(float, pair)) for pair in ends))

    def error_at(self, n: int) -> float:
        """Compute half the range of the values within one standard error of the median's rank."""
        shares = np.clip([0.5 - 0.5 / n**0.5, 0.5 + 0.5 / n**0.5], 0, 1)
        squares = [(np.ptp(np.quantile(group, shares)) / 2) ** 2 for group in self.groups]
        return float(sum(squares) ** 0.5)


def median_interval(values: np.ndarray, confidence: float) -> Interval:
    """Compute the interval of a median from order statistics; unbounded for too few values."""
    rank = _median_rank(len(values), confidence)
    if rank < 1:
        return UNBOUNDED
    ordered = np.sort(values)
    return Interval(float(ordered[rank - 1]), float(ordered[-rank]))


@cache
def _median_rank(n: int, confidence: float) -> int:
    """Return the rank of the value below which the median is in at most half of the error."""
    return int(scipy.stats.binom.ppf((1 - confidence) / 2, n, 0.5))


def _difference(first: Interval, second: Interval | None = None) -> Interval:
    """Return the interval of a first number minus a second one, which is zero if there is none."""
    return Interval(first.low - second.high, first.high - second.low) if second else first


@dataclass(frozen=True)
class Rates(Estimate):
    """Success rate of one group, or that of the first minus that of an independent second."""

    rates: tuple[float, ...]
    numbers: tuple[int, ...]
    """Batches of each group; the value of each is 0 or 1, or the share of its samples."""

    @property
    def value(self) -> float:
        return self.rates[0] - sum(self.rates[1:])

    @property
    def n(self) -> int:
        return min(self.numbers)

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Compute the exact interval of Clopper and Pearson; of a difference, from two of them.

        The intervals of two independent rates cover both with the product of their confidences.
        """
        confidence **= 1 / len(self.rates)
        pairs = zip(self.rates, self.numbers, strict=True)
        return _difference(*(clopper_pearson(rate * n, n, confidence) for rate, n in pairs))

    def at(self, n: int, confidence: float) -> Interval:
        return replace(self, numbers=(n,) * len(self.rates)).interval(confidence)

    def error_at(self, n: int) -> float:
        return float(sum(rate * (1 - rate) / n for rate in self.rates) ** 0.5)


@dataclass(frozen=True)
class PairedRates(Estimate):
    """Difference of two success rates of the same batches."""

    gained: float
    lost: float
    """Shares of the batches that succeed in the first alone, and in the second alone."""
    number: int

    @property
    def value(self) -> float:
        return self.gained - self.lost

    @property
    def n(self) -> int:
        return self.number

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Compute an exact interval whose sign is that of McNemar's exact test.

        The difference is D (2 S - 1), where D is the share of batches on which the two differ, and
        S that of the first's successes among these. Four fifths of the allowed error are spent on
        S, given how many differ (McNemar's test is of S = 1/2), and one fifth on D, as Berger and
        Boos (1994) do with a parameter that is not tested.
        """
        differ = (self.gained + self.lost) * self.number
        sign = clopper_pearson(self.gained * self.number, differ, 1 - 0.8 * (1 - confidence))
        share = clopper_pearson(differ, self.number, 1 - 0.2 * (1 - confidence))
        low, high = 2 * sign.low - 1, 2 * sign.high - 1
        return Interval(
            low * (share.low if low > 0 else share.high),
            high * (share.low if high < 0 else share.high),
        )

    def at(self, n: int, confidence: float) -> Interval:
        return replace(self, number=n).interval(confidence)

    def error_at(self, n: int) -> float:
        return float(((self.gained + self.lost - self.value**2) / n) ** 0.5)


@dataclass(frozen=True)
class Clustered(Estimate):
    """An estimate from batches of several networks, which have more in common than others."""

    batches: Estimate
    """The same estimate as if batches were independent."""
    networks: Means
    """The same estimate from the mean, or median, of each network."""

    @property
    def value(self) -> float:
        return self.batches.value

    @property
    def n(self) -> int:
        return self.batches.n

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Compute the smallest interval that contains those over batches and over networks.

        Over networks it is Student's: means or medians of several batches are nearly normal. It is
        the wider one if networks differ; if they are few and happen to be equal, it is not.
        """
        networks = self.networks.at(self.networks.n, confidence)
        return _hull(self.batches.interval(confidence), networks)

    def at(self, n: int, confidence: float) -> Interval:
        return _hull(self.batches.at(n, confidence), self.networks.at(self._share(n), confidence))

    def error_at(self, n: int) -> float:
        return max(self.batches.error_at(n), self.networks.error_at(self._share(n)))

    def _share(self, n: int) -> int:
        """Return the number of networks of n batches, as many in each as here."""
        return max(2, round(n * self.networks.n / self.n))


@dataclass(frozen=True)
class Overlapping(Estimate):
    """An estimate from batches that have samples in common, since they are more than fit a split.

    It is worth that of as many batches as are disjoint, and more of them would not change that.
    """

    batches: Estimate
    """The same estimate as if batches had no sample in common."""
    disjoint: int

    @property
    def value(self) -> float:
        return self.batches.value

    @property
    def n(self) -> int:
        return self.disjoint

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        return self.batches.at(self.disjoint, confidence)

    def at(self, n: int, confidence: float) -> Interval:
        return self.interval(confidence)

    def error_at(self, n: int) -> float:
        return self.batches.error_at(self.disjoint)


def _hull(*intervals: Interval) -> Interval:
    return Interval(min(each.low for each in intervals), max(each.high for each in intervals))


def clopper_pearson(successes: float, n: float, confidence: float) -> Interval:
    """Compute the exact interval of a success rate.

    Successes need not be whole, for values between 0 and 1: their variance is at most that of a
    success, so the interval is wider than necessary. Without trials it is from 0 to 1.
    """
    error, failures = (1 - confidence) / 2, n - successes
    low = scipy.stats.beta.ppf(error, successes, failures + 1) if successes > 0 else 0.0
    high = scipy.stats.beta.ppf(1 - error, successes + 1, failures) if failures > 0 else 1.0
    return Interval(float(low), float(high))


def rate_of(first: np.ndarray, *second: np.ndarray, paired: bool = False) -> Estimate:
    """Return the estimate of a success rate, or of that of a second group subtracted.

    Args:
        first: the value of each batch, 0 or 1 or the share of its samples.
        second: those of the second group, if there is one.
        paired: the values are differences of two rates of the same batches.
    """
    if paired:
        gained, lost = np.maximum(first, 0).mean(), np.maximum(-first, 0).mean()
        return PairedRates(float(gained), float(lost), len(first))
    groups = (first, *second)
    return Rates(tuple(float(each.mean()) for each in groups), tuple(map(len, groups)))


def mean_of(values: np.ndarray, binary: bool) -> Estimate:
    """Return the estimate of a mean of batches; binary: the metric of a sample is 0 or 1."""
    return rate_of(values) if binary else Means((values,))


def paired_difference(first: np.ndarray, second: np.ndarray, binary: bool) -> Estimate:
    """Return the estimate of the mean of first minus second, of the same batches in one order."""
    change = first - second
    return rate_of(change, paired=True) if binary else Means((change,))


def batches_needed(decided: Callable[[int], bool]) -> int | None:
    """Return the smallest number of batches that decide, from `FEWEST` on; None above `MOST`."""
    if not decided(MOST):
        return None
    return bisect_left(range(MOST), True, lo=FEWEST, key=decided)


def clustered(estimate: Estimate, *networks: np.ndarray) -> Estimate:
    """Return an estimate that accounts for networks, if there are several of them.

    ``networks`` are the means or medians of each network, or of their differences: of a difference
    of two independent groups, of each group.
    """
    return Clustered(estimate, Means(networks)) if min(map(len, networks)) > 1 else estimate


def overlapping(estimate: Estimate, disjoint: float) -> Estimate:
    """Return an estimate that accounts for common samples of batches.

    Args:
        estimate: from all batches.
        disjoint: number of batches without a common sample; infinite if they have none.
    """
    return Overlapping(estimate, int(disjoint)) if disjoint <= estimate.n else estimate


def mean_interval(
    values: Sequence[float] | np.ndarray,
    binary: bool = False,
    networks: Sequence[float] | np.ndarray = (),
) -> Interval:
    """Compute the 95% interval of a mean over batches for a figure; NaN for fewer than `SHOWN`.

    Student's interval of two is 13 times as wide as their distance, and would determine the axes.
    ``networks`` are the means of each network.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < SHOWN:
        return Interval(np.nan, np.nan)
    return clustered(mean_of(values, binary), np.asarray(networks, dtype=float)).interval()
