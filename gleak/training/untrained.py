"""A model as it is initialised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gleak.registry import register
from gleak.spec import knob
from gleak.training.base import History, TrainingSpec

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset


@register("untrained")
class Untrained(TrainingSpec):
    """No training: the first round a server ever starts."""

    init: Literal["default", "uniform"] = knob(
        "default", "uniform: on [-bound, bound]", source="DLG"
    )
    bound: float = knob(0.5, "of the uniform initialisation", source="DLG", gt=0)

    def train(self, model: nn.Module, dataset: Dataset, seed: int) -> History:
        """See `TrainingSpec.train`."""
        from gleak.training.evaluate import test_accuracy
        from gleak.training.initialise import initialise

        initialise(model, self.init, self.bound, seed)
        return History(test_accuracy=test_accuracy(model, dataset))
