"""Honest server."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.crafting.base import CraftingSpec

if TYPE_CHECKING:
    import numpy as np


@register("honest")
class Honest(CraftingSpec):
    """Broadcasts the model without changes: ``model.h5`` itself, not a copy."""

    broadcasts_model: ClassVar[bool] = True

    @override
    def craft_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, seed: int
    ) -> dict[str, np.ndarray]:
        return {}
