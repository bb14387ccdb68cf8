"""Honest server."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from gleak.artifacts.model import Model
from gleak.core.registry import register
from gleak.crafting.base import Crafted, CraftingSpec


@register("honest")
class Honest(CraftingSpec):
    """Broadcasts the model without changes: ``model.h5`` itself, not a copy."""

    broadcasts_model: ClassVar[bool] = True

    @override
    def craft(self, model: Model, seed: int) -> Crafted:
        return Crafted(model)
