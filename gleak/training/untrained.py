"""A model as it is initialised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.registry import register
from gleak.training.base import History, InitialisedSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset
    from gleak.runtime.checkpointing import Part


@register("untrained")
class Untrained(InitialisedSpec):
    """No training: the first round a server ever starts."""

    @override
    def fit(self, model: nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        from gleak.training.evaluate import test_accuracy

        return History(test_accuracy=test_accuracy(model, dataset))
