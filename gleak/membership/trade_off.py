"""Errors of tests that differential privacy allows, and the privacy that errors imply."""

from __future__ import annotations

import math

import numpy as np

from gleak.core.lazy import scipy


def rates_epsilon(
    false_positives: np.ndarray, false_negatives: np.ndarray, delta: float
) -> np.ndarray:
    """Compute the least epsilon that allows both errors of a test; at least 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = [
            np.maximum(1 - one - delta, 0) / other
            for one, other in (
                (false_negatives, false_positives),
                (false_positives, false_negatives),
            )
        ]
        return np.maximum(np.log(np.maximum(*ratios)), 0)


def rates_mu(false_positives: np.ndarray, false_negatives: np.ndarray) -> np.ndarray:
    """Compute the least mu of Gaussian privacy that allows both errors of a test; at least 0."""
    quantiles = scipy.special.ndtri(false_positives) + scipy.special.ndtri(false_negatives)
    return np.maximum(-quantiles, 0)


def gaussian_trade_off(false_positives: np.ndarray, mu: float) -> np.ndarray:
    """Compute the least rate of false negatives under mu-Gaussian differential privacy.

    Phi(Phi^-1(1 - FPR) - mu) (Dong et al. 2022, Definition 2.6).
    """
    return np.asarray(scipy.special.ndtr(-scipy.special.ndtri(false_positives) - mu))


def private_trade_off(false_positives: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
    """Compute the least rate of false negatives under (epsilon, delta)-differential privacy.

    max(0, 1 - delta - e^epsilon FPR, e^-epsilon (1 - delta - FPR)) (Dong et al. 2022, Proposition
    2.5).
    """
    steep = 1 - delta - np.exp(epsilon) * false_positives
    flat = np.exp(-epsilon) * (1 - delta - false_positives)
    return np.maximum(np.maximum(steep, flat), 0)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Compute the least epsilon at delta of a mu-Gaussian differentially private mechanism.

    It solves delta = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu) (Balle and
    Wang 2018, Theorem 8; Dong et al. 2022, Corollary 2.13). One step of noise of z times the
    sensitivity has mu = 1 / z, and T of them have sqrt(T) / z.
    """

    def excess(epsilon: float) -> float:
        first = scipy.special.ndtr(mu / 2 - epsilon / mu)
        second = math.exp(epsilon + scipy.special.log_ndtr(-mu / 2 - epsilon / mu))
        return float(first - second - delta)

    if mu == 0 or excess(0) <= 0:
        return 0.0
    largest = mu**2 / 2 + 40 * mu
    return float(scipy.optimize.brentq(excess, 0, largest))
