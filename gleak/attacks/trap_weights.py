"""Samples that are alone in a neuron with trap weights."""

from __future__ import annotations

from typing import ClassVar

from gleak.attacks.isolated_rows import DirectRowsAttack
from gleak.core.registry import register


@register("trap_weights")
class TrapWeightsAttack(DirectRowsAttack):
    """Rows of the first dense layer's gradient, at parameters crafted by `trap_weights`."""

    source = "Boenisch et al. 2023 (When the Curious Abandon Honesty)"
    crafting: ClassVar[str | None] = "trap_weights"
