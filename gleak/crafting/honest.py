"""The server that broadcasts the model as it was trained."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from gleak.artifacts.model import Model
from gleak.core.registry import register
from gleak.crafting.base import Crafted, CraftingSpec


@register("honest")
class Honest(CraftingSpec):
    """Leaves the parameters as they are; ``model.h5`` itself is broadcast, no copy is made."""

    broadcasts_model: ClassVar[bool] = True

    @override
    def craft(self, model: Model, seed: int) -> Crafted:
        return Crafted(model)
