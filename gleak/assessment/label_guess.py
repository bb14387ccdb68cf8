"""Labels that anybody can name who knows how frequent they are."""

from __future__ import annotations

import numpy as np

from gleak.clients.base import ClientSpec
from gleak.core.lazy import scipy


def label_guess(labels: np.ndarray, client: ClientSpec) -> float:
    """Return the share of a batch's labels that the best guess without its update names.

    A further guess of a label is right if the batch has it as often; the best guess are the
    batch_size most probable of these.

    Args:
        labels: of the population, Shape (N).
        client: its batch is drawn from the population; of some classes, which are drawn first, each
            is in the batch as often as the others, on the mean.
    """
    counts, size = np.bincount(labels), client.batch_size
    frequencies, present = counts / len(labels), np.count_nonzero(counts)
    share = 1.0
    if client.classes is not None and client.classes < present:
        frequencies, share = (counts > 0) / client.classes, client.classes / present
    if client.labels == "unique":
        return min(1.0, size / (client.classes or present)) * share
    times = np.arange(size)
    right = share * scipy.stats.binom.sf(times[None], size, frequencies[:, None])
    return float(np.sort(right.ravel())[-size:].sum() / size)
