"""Measuring pairs of images chunk by chunk, so that memory does not grow with the victims."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from gleak.metrics.base import Comparison

CHUNK = 32


def measure_images(
    measure: Callable[[Tensor, Tensor], Tensor], comparison: Comparison
) -> np.ndarray:
    """One number for each reconstructed image.

    Args:
        measure: maps an estimate and its truth, both Shape (B, C, H, W) and double precision, to
            Shape (B).
        comparison: of images.

    Returns:
        Shape (V, N).
    """
    import torch

    shape = comparison.truth.shape
    estimates = comparison.estimate.reshape(-1, *shape[2:])
    truths = comparison.truth.reshape(-1, *shape[2:])
    with torch.inference_mode():
        values = [
            measure(
                torch.tensor(estimates[start : start + CHUNK], dtype=torch.float64),
                torch.tensor(truths[start : start + CHUNK], dtype=torch.float64),
            )
            for start in range(0, len(truths), CHUNK)
        ]
        return np.asarray(torch.cat(values).double().numpy()).reshape(shape[:2])
