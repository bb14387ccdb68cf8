"""What every training spec provides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.spec import Spec, parameter
from gleak.runtime.checkpointing import Journal, Part, strip_prefix

if TYPE_CHECKING:
    from torch import nn

    from gleak.artifacts.dataset import Dataset
    from gleak.data.base import DatasetSpec


@dataclass
class History:
    """How a training went: one value per epoch or round."""

    train_loss: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)

    def state(self) -> dict[str, np.ndarray]:
        """Its values so far, for a job's journal."""
        return {f"history.{name}": np.array(values) for name, values in vars(self).items()}

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave; of a larger state the rest is left alone."""
        for name, values in strip_prefix("history", state).items():
            setattr(self, name, values.tolist())


class TrainingSpec(Spec):
    """How a model comes by its parameters."""

    kind: ClassVar[str] = "training"

    def epochs_of_data(self, samples: int) -> float:
        """Passes over a train split of so many samples, for estimates of cost."""
        return 0.0

    def check(self, dataset: DatasetSpec) -> None:
        """Refuse a dataset with too few samples, as far as is known before reading it.

        Raises:
            IncompatibleError: see `check_samples`.
        """
        if dataset.sizes is not None:
            self.check_samples(dataset.sizes["train"], str(dataset))

    def check_network(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        """Refuse a network that cannot be trained so, told by the network itself.

        Args:
            network: untrained, in evaluation mode; left as it is.
            shape: of a sample.

        Raises:
            IncompatibleError: says what the network lacks.
        """

    def check_samples(self, samples: int, dataset: str) -> None:
        """Refuse a train split that is too small; any will do where nothing is trained.

        Args:
            samples: in the split.
            dataset: its spec, for the error.

        Raises:
            IncompatibleError: says which number is too small.
        """


class InitialisedSpec(TrainingSpec):
    """Parameters that are made here: the first ones, and what becomes of them."""

    init: Literal["default", "uniform"] = parameter(
        "default", "uniform: on [-bound, bound]", source="DLG"
    )
    bound: float = parameter(0.5, "of the uniform initialisation", source="DLG", gt=0)

    def train(
        self, model: nn.Module, dataset: Dataset, seed: int, journal: Journal | None = None
    ) -> History:
        """Set the parameters of ``model`` in place and report how it went.

        Args:
            model: changed in place.
            dataset: to learn from.
            seed: of the run.
            journal: of the job, if it keeps one.

        Raises:
            IncompatibleError: too few samples in the dataset's train split.
        """
        from gleak.training.initialise import initialise

        self.check_samples(len(dataset.train_labels), dataset.spec)
        initialise(model, self.init, self.bound, seed)
        return self.fit(model, dataset, seed, (journal or Journal()).part())

    @abstractmethod
    def fit(self, model: nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        """Go on from the first parameters, in place; ``part`` is of the job's journal."""
