"""Measuring pairs of images one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


def measure_images(
    measure: Callable[[np.ndarray, np.ndarray], float], comparison: Comparison
) -> np.ndarray:
    """One number for each reconstructed image.

    Args:
        measure: maps an estimate and its truth, both Shape (C, H, W) in double precision.
        comparison: of images.

    Returns:
        Shape (V, N).
    """
    shape = comparison.truth.shape
    pairs = zip(
        comparison.estimate.reshape(-1, *shape[2:]).astype(np.float64),
        comparison.truth.reshape(-1, *shape[2:]).astype(np.float64),
        strict=True,
    )
    return np.array([measure(*pair) for pair in pairs]).reshape(shape[:2])
