"""A model trained in one place on the whole training split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gleak.errors import DataError
from gleak.registry import register
from gleak.spec import knob
from gleak.training.base import History, TrainingSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset


@register("central")
class Central(TrainingSpec):
    """Adam on cross-entropy over shuffled mini-batches."""

    epochs: int = knob(20, "passes over the training split", source="CPA section V-A", ge=1)
    lr: float = knob(1e-3, "learning rate", source="torch default", gt=0)
    batch_size: int = knob(64, "samples of a step", ge=1)
    init: Literal["default", "uniform"] = knob(
        "default", "uniform: on [-bound, bound]", source="DLG"
    )
    bound: float = knob(0.5, "of the uniform initialisation", source="DLG", gt=0)

    @property
    def epochs_of_data(self) -> float:
        """See `TrainingSpec.epochs_of_data`."""
        return float(self.epochs)

    def train(self, model: nn.Module, dataset: Dataset, seed: int) -> History:
        """See `TrainingSpec.train`.

        Raises:
            DataError: the dataset has no training split.
        """
        from gleak.training.epochs import run_epochs
        from gleak.training.initialise import initialise

        if not len(dataset.train_labels):
            raise DataError(f"training {self}: the dataset has no samples in its train split")
        initialise(model, self.init, self.bound, seed)
        return run_epochs(model, dataset, self.epochs, self.lr, self.batch_size, seed)
