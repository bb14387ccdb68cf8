"""Audit of rows whose positive and negative weights cancel in the same way."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Broadcast, Finding
from gleak.metrics.audits.weight_matrices import large_lines

DIRECTIONS = 32
FEWEST_ROWS = 16
FEWEST_INPUTS = 32
COLLAPSED = 0.05


@register("audit_balance")
class AuditBalance(AuditSpec):
    """Agreement of the sums of the rows of a layer that takes the samples, beyond chance.

    With rows w scaled to unit norm and q the distance of the quartiles over the rows, the statistic
    is median_r q(w r) / q(w 1), over 32 vectors r of random signs. It is about 1 for fresh rows,
    and smaller for trained ones, whose response to brightness, w 1, differs most. The rows of trap
    weights contain the same magnitudes with either sign, up to a factor, so that their sums are
    almost equal. Layers that lie in so few directions that q(w r) is below 0.05, fewer than 16 rows
    or 32 inputs score 0.
    """

    source = "ours, for Boenisch et al. 2023 (When the Curious Abandon Honesty)"
    meaning: ClassVar[str] = (
        "The positive and negative weights of every neuron cancel to the same small remainder, "
        "which training does not do: few of your samples activate a neuron, and its gradient "
        "shows them."
    )

    limit: float = parameter(
        4.0, "value above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        return [
            _examine(layer.name, layer.weights[large_lines(layer.weights)[0]])
            for layer in broadcast.layers_of_samples
        ]


def _examine(name: str, rows: NDArray) -> Finding:
    count, inputs = rows.shape
    if count < FEWEST_ROWS or inputs < FEWEST_INPUTS:
        return Finding(name, 0.0, f"{count} rows of {inputs} inputs are too few")
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (inputs, DIRECTIONS))
    by_chance = float(np.median(_spread(units @ signs)))
    spread = float(_spread(units.sum(axis=1, keepdims=True))[0])
    text = f"sums of {count} rows spread by {spread:.2g}, with random signs by {by_chance:.2g}"
    if by_chance < COLLAPSED:
        return Finding(name, 0.0, text)
    return Finding(name, by_chance / spread if spread else np.inf, text)


def _spread(values: NDArray) -> NDArray:
    """Compute the distance of the quartiles of every column."""
    low, high = np.quantile(values, (0.25, 0.75), axis=0)
    return np.asarray(high - low)
