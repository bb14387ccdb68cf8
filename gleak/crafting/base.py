"""What every crafting spec provides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gleak.artifacts.model import Model
from gleak.core.spec import Spec

if TYPE_CHECKING:
    from torch import nn

    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


@dataclass(frozen=True)
class Crafted:
    """What a server made of a model.

    Args:
        model: the parameters that are broadcast.
        secret: what it keeps to itself, by name; see `gleak.artifacts.model.Secret`.
    """

    model: Model
    secret: Mapping[str, np.ndarray] = field(default_factory=dict)


class CraftingSpec(Spec):
    """What a server does to the parameters before it broadcasts them."""

    kind: ClassVar[str] = "crafting"
    broadcasts_model: ClassVar[bool] = False

    @abstractmethod
    def craft(self, model: Model, seed: int) -> Crafted:
        """The parameters that are broadcast, and what the server remembers of them.

        Raises:
            IncompatibleError: a network that it cannot craft.
        """

    def check(self, dataset: DatasetSpec, model: ModelSpec) -> None:
        """Refuse a model it cannot craft, as far as is known before any work.

        Raises:
            IncompatibleError: names the crafting and what does not fit it.
        """

    def check_network(self, network: nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """Refuse a network it cannot craft, told by the network itself.

        Args:
            network: untrained, in evaluation mode; left as it is.
            shape: of a sample.
            classes: number of outputs.

        Raises:
            IncompatibleError: says what the network lacks.
        """
