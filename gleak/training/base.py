"""What every training spec provides."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from gleak.spec import Spec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset


@dataclass
class History:
    """How a training went: one value per epoch or round."""

    train_loss: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)


class TrainingSpec(Spec):
    """How a model comes by its parameters."""

    kind: ClassVar[str] = "training"

    @abstractmethod
    def train(self, model: nn.Module, dataset: Dataset, seed: int) -> History:
        """Set the parameters of ``model`` in place and report how it went."""

    @property
    def epochs_of_data(self) -> float:
        """Passes over the training split, for estimates of cost."""
        return 0.0
