"""Cosine similarity of reconstructed embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("embedding_cosine")
class EmbeddingCosine(MetricSpec):
    """Cosine similarity of each true embedding and its assigned reconstruction.

    Embeddings are assigned independently of samples, with the greatest sum of cosines. Unlike in
    the authors' code no absolute value is taken: the sign is part of the result. The cosine of a
    zero vector is 0, as is that of a true embedding without an assigned one: nothing of it was
    recovered.
    """

    source = "CPA Figure 7"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    @override
    def applies(self, comparison: Comparison) -> bool:
        """Return True if the model has embeddings and the attack reconstructs them."""
        found = comparison.reconstruction
        is_found = found is not None and found.embeddings is not None
        return super().applies(comparison) and is_found and comparison.embeddings is not None

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the cosines; Shape (V, N), in [-1, 1], NaN if unassigned.

        Raises:
            MetricUnavailable: the embeddings are of different layers.
        """
        pairs = zip(*_embeddings(comparison), strict=True)
        return np.stack([_best_cosines(true, found) for true, found in pairs])

    @override
    def matched(self, comparison: Comparison) -> np.ndarray:
        return np.asarray(~np.isnan(self.measure(comparison)))


def _embeddings(comparison: Comparison) -> tuple[np.ndarray, np.ndarray]:
    """Return true, Shape (V, N, E), and reconstructed embeddings, Shape (V, M, E)."""
    assert comparison.embeddings is not None and comparison.reconstruction is not None
    assert comparison.reconstruction.embeddings is not None
    truth, found = comparison.embeddings, comparison.reconstruction.embeddings
    if truth.shape[-1] != found.shape[-1]:
        raise MetricUnavailable(
            f"true embeddings have {truth.shape[-1]} numbers each, the reconstructed ones "
            f"{found.shape[-1]}: they are inputs of different layers"
        )
    return truth, found


def _best_cosines(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Compute the cosines of the pairs of one victim; Shape (N), NaN if unassigned."""
    from gleak.metrics.reconstruction.assignment import UNASSIGNED, assign

    cosines = np.clip(_unit(truth) @ _unit(found).T, -1, 1)
    order = assign(-cosines)
    pairs = np.flatnonzero(order != UNASSIGNED)
    best = np.full(len(truth), np.nan)
    best[pairs] = cosines[pairs, order[pairs]]
    return best


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Normalise vectors to length 1 in double precision; zero vectors are unchanged."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=-1, keepdims=True)
    return np.divide(exact, lengths, out=np.zeros_like(exact), where=lengths > 0)
