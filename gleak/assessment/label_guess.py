"""Labels that anybody can name who knows how frequent they are."""

from __future__ import annotations

import numpy as np

from gleak.core.lazy import scipy


def label_guess(labels: np.ndarray, batch_size: int) -> float:
    """Return the share of a batch's labels that the best guess without its update names.

    A further guess of a label is right if the batch has it as often; the best guess are the
    batch_size most probable of these.

    Args:
        labels: of the population, Shape (N).
        batch_size: labels of a batch, drawn from the population.
    """
    frequencies = np.bincount(labels) / len(labels)
    times = np.arange(batch_size)
    right = scipy.stats.binom.sf(times[None], batch_size, frequencies[:, None])
    return float(np.sort(right.ravel())[-batch_size:].sum() / batch_size)
