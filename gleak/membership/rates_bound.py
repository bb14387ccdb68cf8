"""Bound on epsilon for every private mechanism, by the rates of a test."""

from __future__ import annotations

import math

import numpy as np

from gleak.membership.threshold_bound import Scores, ThresholdBound, errors, upper_bounds
from gleak.membership.trade_off import rates_epsilon

THRESHOLDS = 100
"""Largest number of thresholds among which one is chosen."""


class RatesBound(ThresholdBound):
    """Largest epsilon that both errors exclude, whatever the mechanism."""

    def values(self, positives: np.ndarray, negatives: np.ndarray, delta: float) -> np.ndarray:
        return rates_epsilon(positives, negatives, delta)

    def threshold(self, present: Scores, absent: Scores, delta: float, confidence: float) -> float:
        """Choose the threshold with the largest bound on the scores that choose.

        Their intervals are wider than those of the scores that measure, so that it is none of those
        at which few errors are seen by chance.
        """
        every = np.unique(np.concatenate([present.choosing, absent.choosing]))
        places = np.linspace(0, len(every) - 1, min(len(every), THRESHOLDS)).round().astype(int)
        counts = errors(present.choosing, absent.choosing, every[places])
        sizes = len(absent.choosing), len(present.choosing)
        values = self.values(*upper_bounds(counts, sizes, confidence), delta)
        return float(every[places][values.argmax()])

    def epsilon_and_mu(self, value: float, delta: float) -> tuple[float, float]:
        return value, math.nan
