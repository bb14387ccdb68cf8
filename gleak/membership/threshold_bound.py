"""Base of bounds on epsilon by the rates of both errors at one threshold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gleak.core.lazy import scipy

CHOOSING = 4
"""One score of so many chooses the threshold."""


@dataclass(frozen=True)
class Scores:
    """Scores of one kind, those that choose the test and those that measure it."""

    choosing: np.ndarray
    measuring: np.ndarray


def split_scores(scores: np.ndarray) -> Scores:
    chooses = np.arange(len(scores)) % CHOOSING == 0
    return Scores(scores[chooses], scores[~chooses])


@dataclass(frozen=True)
class Finding:
    """Numbers of an audit; see `EpsilonAudit`."""

    epsilon: float
    mu: float
    threshold: float
    ceiling: float


class ThresholdBound(ABC):
    """Bound on epsilon by the rates of both errors at one threshold."""

    @abstractmethod
    def values(self, positives: np.ndarray, negatives: np.ndarray, delta: float) -> np.ndarray:
        """Compute a number that grows with the bound from upper bounds on both rates."""

    @abstractmethod
    def threshold(self, present: Scores, absent: Scores, delta: float, confidence: float) -> float:
        """Choose a threshold by the scores that choose."""

    @abstractmethod
    def epsilon_and_mu(self, value: float, delta: float) -> tuple[float, float]:
        """Return the bounds that belong to a value."""

    def compute(self, present: Scores, absent: Scores, delta: float, confidence: float) -> Finding:
        """Compute the bound of scores with and without a canary."""
        threshold = self.threshold(present, absent, delta, confidence)
        sizes = len(absent.measuring), len(present.measuring)
        counts = errors(present.measuring, absent.measuring, np.array([threshold]))
        none = np.zeros(1), np.zeros(1)
        (epsilon, mu), (ceiling, _) = (
            self.epsilon_and_mu(float(self.values(*rates, delta)[0]), delta)
            for rates in (
                upper_bounds(counts, sizes, confidence),
                upper_bounds(none, sizes, confidence),
            )
        )
        return Finding(epsilon, mu, threshold, ceiling)


def middle_of(present: Scores, absent: Scores) -> float:
    return float(np.median(present.choosing) + np.median(absent.choosing)) / 2


def errors(
    present: np.ndarray, absent: np.ndarray, thresholds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Count false positives and false negatives at each threshold; Shape (K) each."""
    positives = len(absent) - np.searchsorted(np.sort(absent), thresholds, "left")
    return positives, np.searchsorted(np.sort(present), thresholds, "left")


def upper_bounds(
    counts: Sequence[np.ndarray], sizes: tuple[int, int], confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the upper bounds of Clopper and Pearson, which hold together with a confidence."""
    level = 1 - (1 - confidence) / 2

    def upper(count: np.ndarray, size: int) -> np.ndarray:
        failures = np.maximum(size - count, 1)
        bound = scipy.special.betaincinv(count + 1, failures, level)
        return np.where(count < size, bound, 1.0)

    first, second = (upper(count, size) for count, size in zip(counts, sizes, strict=True))
    return first, second
