"""A model as it is initialised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.registry import register
from gleak.training.base import History, TrainingSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset


@register("untrained")
class Untrained(TrainingSpec):
    """No training: the first round a server ever starts."""

    def fit(self, model: nn.Module, dataset: Dataset, seed: int) -> History:
        """See `TrainingSpec.fit`."""
        from gleak.training.evaluate import test_accuracy

        return History(test_accuracy=test_accuracy(model, dataset))
