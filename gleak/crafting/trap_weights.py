"""Trap weights: rows whose halves of either sign almost cancel."""

from __future__ import annotations

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.crafting.dense_rows import RowsCrafting, RowsOfSamples


@register("trap_weights")
class TrapWeights(RowsCrafting):
    """Server of When the Curious Abandon Honesty: neurons that few samples activate.

    Half of the weights of a row, at random places, are minus the magnitudes of normal values. The
    other half are the same magnitudes times ``factor`` < 1, in another order. Of intensities, which
    are positive, the negative half then weighs a little more, so that most samples activate few
    neurons, and some neurons a single sample of a batch. Biases are zero.
    """

    source = "Boenisch et al. 2023 (When the Curious Abandon Honesty)"

    factor: float = parameter(
        0.95,
        "magnitude of positive weights relative to negative ones",
        source="breaching's implementation of Boenisch et al.",
        gt=0,
        lt=1,
    )

    def draw_rows(
        self, rows: int, shape: tuple[int, ...], random: torch.Generator
    ) -> RowsOfSamples:
        values = torch.Size(shape).numel()
        half = values // 2
        places = torch.rand(rows, values, generator=random).argsort(1)
        magnitudes = torch.randn(rows, values - half, generator=random).abs()
        weight = torch.empty(rows, values)
        weight.scatter_(1, places[:, half:], -magnitudes)
        weight.scatter_(1, places[:, :half], self.factor * magnitudes[:, :half])
        return RowsOfSamples(weight, torch.zeros(rows))
