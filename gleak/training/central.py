"""A model trained in one place on the whole training split."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gleak.errors import FitError
from gleak.registry import register
from gleak.spec import knob
from gleak.training.base import History, InitialisedSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset
    from gleak.runtime.journal import Part


@register("central")
class Central(InitialisedSpec):
    """Adam on cross-entropy over shuffled mini-batches."""

    effort: ClassVar[frozenset[str]] = frozenset({"epochs"})

    epochs: int = knob(20, "passes over the training split", source="CPA section V-A", ge=1)
    lr: float = knob(1e-3, "learning rate", source="CPA section V-A", gt=0)
    batch_size: int = knob(64, "samples of a step", ge=1)

    def epochs_of_data(self, samples: int) -> float:
        """See `TrainingSpec.epochs_of_data`."""
        return float(self.epochs)

    def check_samples(self, samples: int, dataset: str) -> None:
        """See `TrainingSpec.check_samples`."""
        if not samples:
            raise FitError(f"training {self}: {dataset} has no samples in its train split")

    def fit(self, model: nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        """See `InitialisedSpec.fit`."""
        from gleak.training.epochs import run_epochs

        return run_epochs(model, dataset, self.epochs, self.lr, self.batch_size, seed, part)
