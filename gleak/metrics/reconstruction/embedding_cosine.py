"""How close the reconstructed embeddings come to the true ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("embedding_cosine")
class EmbeddingCosine(MetricSpec):
    """Cosine similarity of each true embedding and the reconstructed one assigned to it.

    Embeddings are assigned on their own, at the greatest sum of cosines. No absolute value is
    taken, unlike in the authors' code: the sign is part of what is found. A vector of zeros has
    the cosine 0, and so has a true embedding that none was left for: nothing of it was found.
    """

    source = "CPA Figure 7"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    def applies(self, comparison: Comparison) -> bool:
        """Where a model has embeddings and an attack reconstructs them."""
        found = comparison.reconstruction
        is_found = found is not None and found.embeddings is not None
        return super().applies(comparison) and is_found and comparison.embeddings is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), in [-1, 1]; NaN where no reconstructed embedding was left.

        Raises:
            MetricUnavailable: the two are not of one layer.
        """
        pairs = zip(*_embeddings(comparison), strict=True)
        return np.stack([_best_cosines(true, found) for true, found in pairs])

    def matched(self, comparison: Comparison) -> np.ndarray:
        """Which true embeddings have a reconstructed one beside them; Shape (V, N)."""
        return np.asarray(~np.isnan(self.measure(comparison)))


def _embeddings(comparison: Comparison) -> tuple[np.ndarray, np.ndarray]:
    """The true ones, Shape (V, N, E), and the reconstructed ones, Shape (V, M, E)."""
    assert comparison.embeddings is not None and comparison.reconstruction is not None
    assert comparison.reconstruction.embeddings is not None
    truth, found = comparison.embeddings, comparison.reconstruction.embeddings
    if truth.shape[-1] != found.shape[-1]:
        raise MetricUnavailable(
            f"true embeddings have {truth.shape[-1]} numbers each, the reconstructed ones "
            f"{found.shape[-1]}: they are not what one layer is given"
        )
    return truth, found


def _best_cosines(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Cosines of the pairs of one victim; Shape (N), NaN for those left out."""
    from gleak.metrics.reconstruction.assignment import UNASSIGNED, assign

    cosines = np.clip(_unit(truth) @ _unit(found).T, -1, 1)
    order = assign(-cosines)
    pairs = np.flatnonzero(order != UNASSIGNED)
    best = np.full(len(truth), np.nan)
    best[pairs] = cosines[pairs, order[pairs]]
    return best


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1, in double precision; those of zeros stay."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=-1, keepdims=True)
    return np.divide(exact, lengths, out=np.zeros_like(exact), where=lengths > 0)
