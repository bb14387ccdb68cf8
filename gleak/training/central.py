"""Central training on the whole train split."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.training.base import History, InitialisedSpec

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset
    from gleak.runtime.checkpointing import Part


@register("central")
class Central(InitialisedSpec):
    """Training with Adam on the cross-entropy of shuffled mini-batches."""

    budget_fields: ClassVar[frozenset[str]] = frozenset({"epochs"})

    epochs: int = parameter(20, "epochs over the train split", source="CPA section V-A", ge=1)
    lr: float = parameter(1e-3, "learning rate", source="CPA section V-A", gt=0)
    batch_size: int = parameter(64, "samples per step", ge=1)

    @override
    def epochs_of_data(self, samples: int) -> float:
        return float(self.epochs)

    @override
    def check_samples(self, samples: int, dataset: str) -> None:
        if not samples:
            raise IncompatibleError(f"training {self}: {dataset} has no samples in its train split")

    @override
    def fit(self, model: torch.nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        from gleak.training.central_training import run_epochs

        return run_epochs(model, dataset, self.epochs, self.lr, self.batch_size, seed, part)
