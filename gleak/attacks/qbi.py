"""Samples that are alone in a neuron with a bias by quantiles."""

from __future__ import annotations

from typing import ClassVar

from gleak.attacks.isolated_rows import DirectRowsAttack
from gleak.core.registry import register


@register("qbi")
class QBIAttack(DirectRowsAttack):
    """Rows of the first dense layer's gradient, at parameters crafted by `qbi`."""

    source = "Nowak et al. 2024 (QBI)"
    crafting: ClassVar[str | None] = "qbi"
