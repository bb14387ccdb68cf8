"""What every crafting spec provides."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from gleak.artifacts.model import Model
from gleak.spec import Spec


class CraftingSpec(Spec):
    """What a server does to the parameters before it broadcasts them."""

    kind: ClassVar[str] = "crafting"
    broadcasts_model: ClassVar[bool] = False

    @abstractmethod
    def craft(self, model: Model, seed: int) -> Model:
        """The parameters that are broadcast."""
