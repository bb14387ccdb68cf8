"""A model as it is initialised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.registry import register
from gleak.training.base import History, InitialisedSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset
    from gleak.runtime.journal import Part


@register("untrained")
class Untrained(InitialisedSpec):
    """No training: the first round a server ever starts."""

    def fit(self, model: nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        """See `InitialisedSpec.fit`."""
        from gleak.training.evaluate import test_accuracy

        return History(test_accuracy=test_accuracy(model, dataset))
