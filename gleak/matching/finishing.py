"""What becomes of a search's samples at its end, where they may lie outside [0, 1]."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from gleak.matching.parts import Finish


def finished(inputs: Tensor, finish: Finish) -> np.ndarray:
    """Samples in [0, 1], values that are not finite as 0.

    Args:
        inputs: Shape (V, N, *sample shape).
        finish: how.
    """
    samples = inputs.nan_to_num().cpu().numpy()
    if finish == "cut":
        return samples.clip(0, 1)
    return np.stack([[FINISHES[finish](one) for one in victim] for victim in samples])


def stretched(sample: np.ndarray) -> np.ndarray:
    """Divided by its largest magnitude, so that it fills [0, 1] from above (ROG section 4.3)."""
    largest = np.abs(sample).max()
    return (sample / largest if largest else sample).clip(0, 1)


def equalized(sample: np.ndarray) -> np.ndarray:
    """Stretched, and then as many values at each intensity as at any other (ROG section 4.3).

    All channels have one histogram, which keeps the order of colours.
    """
    from skimage.exposure import equalize_hist

    equal: np.ndarray = equalize_hist(stretched(sample)).astype(sample.dtype)
    return equal


FINISHES: dict[Finish, Callable[[np.ndarray], np.ndarray]] = {
    "stretched": stretched,
    "equalized": equalized,
}
