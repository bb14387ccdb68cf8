"""Neurons that say the same as another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.metrics.audit import AuditSpec, Finding
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

COSINE = 0.999
PROJECTED_COSINE = 0.95
DIRECTIONS = 64
FEWEST_INPUTS = 16
FEWEST_ROWS = 4
BLOCK_ROWS = 1024


@register("audit_parallel")
class AuditParallel(AuditSpec):
    """Largest share of a layer's neurons or filters that are parallel to another of the layer.

    Parallel is a cosine beyond 0.999 or -0.999. The pairs that keep one of two neurons active (MKOR
    equation 10) are, whatever their scale, until noise of 3% of the weights is added to all of
    them; the closest rows that we saw training make have 0.991 (two of SqueezeNet's first filters).
    Rows of zeros have no direction and are left out. Rows are compared in 64 random directions
    first, and each with the nearest of the others as they are. Layers of fewer than 16 inputs or 4
    outputs say nothing.
    """

    limit: float = knob(
        5e-4, "share above which it alarms", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`."""
        findings = []
        for layer in broadcast.layers:
            rows, inputs = layer.weights.shape
            if inputs >= FEWEST_INPUTS and rows >= FEWEST_ROWS:
                found = parallel_rows(layer)
                text = f"{found} of {rows} rows are parallel to another"
                findings.append(Finding(layer.name, found / rows, text))
        return findings


def parallel_rows(layer: Layer) -> int:
    """How many rows of a layer are parallel to another row."""
    weights = layer.weights
    norms = np.sqrt(np.einsum("ij,ij->i", weights, weights))
    rows = np.flatnonzero(norms)
    shadows = _normalised(_projected(weights)[rows])
    found = 0
    for start in range(0, len(rows), BLOCK_ROWS):
        here = np.arange(start, min(start + BLOCK_ROWS, len(rows)))
        cosines = np.abs(shadows[here] @ shadows.T)
        cosines[np.arange(len(here)), here] = 0
        partners = cosines.argmax(axis=1)
        near = cosines[np.arange(len(here)), partners] > PROJECTED_COSINE
        pairs = zip(rows[here[near]], rows[partners[near]], strict=True)
        found += sum(
            abs(float(weights[a] @ weights[b])) > COSINE * float(norms[a] * norms[b])
            for a, b in pairs
        )
    return found


def _projected(weights: np.ndarray) -> np.ndarray:
    """Rows in `DIRECTIONS` random directions, or as they are where they have no more."""
    if weights.shape[1] <= DIRECTIONS:
        return weights
    random = np.random.default_rng(0)
    return weights @ random.standard_normal((weights.shape[1], DIRECTIONS), dtype=np.float32)


def _normalised(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
