"""Base classes of trainings, random initial parameters, and test accuracy."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.spec import Spec, parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.batching import memory_slices
from gleak.models.parameters import as_inputs
from gleak.runtime.checkpointing import Journal, Part, strip_prefix
from gleak.runtime.seeding import derived_seed, drawing_from, torch_stream

Init = Literal["default", "kaiming", "uniform"]


@dataclass
class History:
    """Learning curves: one value per epoch or round."""

    train_loss: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)

    def append(self, loss: float, accuracy: Sequence[float]) -> None:
        """Add the values of an epoch or round; raise `FloatingPointError` if the loss diverges."""
        self.train_loss.append(loss)
        self.test_accuracy += accuracy
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at number {len(self.train_loss)}")

    def state(self) -> dict[str, np.ndarray]:
        return {f"history.{name}": np.array(values) for name, values in vars(self).items()}

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        for name, values in strip_prefix("history", state).items():
            setattr(self, name, values.tolist())


class TrainingSpec(Spec):
    """Base class of trainings: sources of a model's parameters."""

    kind: ClassVar[str] = "training"

    def epochs_of_data(self, samples: int) -> float:
        """Return the epochs over a train split of this size, for cost estimates."""
        return 0.0

    def check(self, dataset: DatasetSpec) -> None:
        """Raise `IncompatibleError` if a dataset has too few samples, as far as its spec tells."""
        if dataset.sizes is not None:
            self.check_samples(dataset.sizes["train"], str(dataset))

    def check_model(self, model: ModelSpec) -> None:
        """Raise `IncompatibleError` for a model that is not supported, as far as the specs tell."""

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        """Raise `IncompatibleError` for a network that is not supported.

        Args:
            network: untrained, in evaluation mode; not changed.
            shape: shape of a sample.
        """

    def check_samples(self, samples: int, dataset: str) -> None:
        """Raise `IncompatibleError`, which names the dataset, if its train split is too small."""


class InitialisedSpec(TrainingSpec):
    """Base class of trainings that start from randomly initialised parameters."""

    init: Init = parameter(
        "default",
        "torch's of each layer, or that of the user's function for its network; kaiming: "
        "convolutions normal, of variance 2 / fan-out; uniform: on [-bound, bound]",
        source="torch; kaiming: torchvision's ResNets, InvertGrad's code; uniform: DLG's code",
    )
    bound: float = parameter(0.5, "bound of the uniform initialisation", source="DLG", gt=0)
    repetition: int = parameter(
        0, "number of the training; those of other numbers have independent random numbers", ge=0
    )

    def own_seed(self, seed: int) -> int:
        """Return the seed of the training of this number, from that of the run."""
        if not self.repetition:
            return seed
        return derived_seed(seed, f"training repetition {self.repetition}")

    def train(
        self,
        model: torch.nn.Module,
        dataset: Dataset,
        seed: int,
        journal: Journal | None = None,
        *,
        initialised: bool = False,
    ) -> History:
        """Initialise and train a model in place.

        Args:
            model: network that is trained.
            dataset: train and test split.
            seed: of the run.
            journal: checkpoints of the job; None: none.
            initialised: the parameters of the model are those of ``init=default`` already.

        Raises:
            IncompatibleError: too few samples in the dataset's train split, or a training that
                diverges.
        """
        self.check_samples(len(dataset.train_labels), dataset.spec)
        seed = self.own_seed(seed)
        if not initialised or self.init != "default":
            initialise(model, self.init, self.bound, seed)
        try:
            return self.fit(model, dataset, seed, (journal or Journal()).part())
        except FloatingPointError as error:
            raise IncompatibleError(
                f"training {self} diverges on {dataset.spec}: {error}; use a smaller lr"
            ) from error

    def rehearse(self, model: torch.nn.Module, dataset: Dataset, part: Part) -> None:
        """Run one step of `fit` on a `gleak.runtime.virtual_gpu.VirtualGPU`, without values."""
        self.fit(model, dataset, 0, part)

    @abstractmethod
    def fit(self, model: torch.nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        """Train from the initial parameters, in place.

        A training that was interrupted resumes from what ``part``, of a checkpoint, has stored.
        """


def initialise(network: torch.nn.Module, init: Init, bound: float, seed: int) -> None:
    """Draw all parameters of a network in place, on the CPU so that the device changes no draw.

    "default" is the initialisation of torch's layers, "uniform" is on [-bound, bound]. "kaiming"
    draws normal weights of convolutions with variance 2 / (outputs x kernel size), and torch's for
    all other parameters, as torchvision's ResNets (He et al. 2015, section 2.2, backward case).
    """
    device = next(network.parameters()).device
    network.cpu()
    stream = torch_stream(seed, "initialisation")
    if init == "uniform":
        for value in network.parameters():
            torch.nn.init.uniform_(value, -bound, bound, generator=stream)
    else:
        with drawing_from(stream):
            for layer in network.modules():
                if callable(reset := getattr(layer, "reset_parameters", None)):
                    reset()
            for layer in network.modules():
                if init == "kaiming" and isinstance(layer, torch.nn.Conv2d):
                    torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    network.to(device)


def test_accuracy(network: torch.nn.Module, dataset: Dataset) -> list[float]:
    """Compute the share of correct test samples; an empty list without test samples."""
    labels = torch.from_numpy(dataset.labels("test"))
    if not len(labels):
        return []
    was_training = network.training
    network.eval()
    correct = 0
    with torch.no_grad():
        for chunk in memory_slices(len(labels), dataset.shape):
            logits = network(as_inputs(network, dataset.samples("test", chunk)))
            correct += int((logits.argmax(1).cpu() == labels[chunk]).sum())
    network.train(was_training)
    return [correct / len(labels)]
