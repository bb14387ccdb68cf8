"""Bound on epsilon for Gaussian noise, by the trade-off curve of a Gaussian test."""

from __future__ import annotations

import numpy as np

from gleak.membership.threshold_bound import Scores, ThresholdBound, middle_of
from gleak.membership.trade_off import gaussian_epsilon, rates_mu


class GaussianBound(ThresholdBound):
    """Largest mu whose trade-off curve both errors exclude, and its epsilon."""

    def values(self, positives: np.ndarray, negatives: np.ndarray, delta: float) -> np.ndarray:
        return rates_mu(positives, negatives)

    def threshold(self, present: Scores, absent: Scores, delta: float, confidence: float) -> float:
        """Choose the middle, where both errors of normal scores are equal and best measured."""
        return middle_of(present, absent)

    def epsilon_and_mu(self, value: float, delta: float) -> tuple[float, float]:
        return gaussian_epsilon(value, delta), value
