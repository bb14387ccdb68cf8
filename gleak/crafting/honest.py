"""The server that broadcasts the model as it was trained."""

from __future__ import annotations

from typing import ClassVar

from gleak.artifacts.model import Model
from gleak.crafting.base import Crafted, CraftingSpec
from gleak.registry import register


@register("honest")
class Honest(CraftingSpec):
    """Leaves the parameters as they are; ``model.h5`` itself is broadcast, no copy is made."""

    broadcasts_model: ClassVar[bool] = True

    def craft(self, model: Model, seed: int) -> Crafted:
        """See `CraftingSpec.craft`."""
        return Crafted(model)
