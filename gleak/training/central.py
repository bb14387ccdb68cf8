"""Central training on the whole train split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.differentiation import penalties
from gleak.models.parameters import as_inputs
from gleak.runtime.checkpointing import Part, State, optimizer_state, resume_optimizer, strip_prefix
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, stream, torch_stream
from gleak.training.base import History, InitialisedSpec, test_accuracy


@register("central")
class Central(InitialisedSpec):
    """Training with Adam on the cross-entropy of shuffled mini-batches."""

    budget_fields: ClassVar[frozenset[str]] = frozenset({"epochs"})

    epochs: int = parameter(20, "epochs over the train split", source="CPA section V-A", ge=1)
    lr: float = parameter(1e-3, "learning rate", source="CPA section V-A", gt=0)
    batch_size: int = parameter(64, "samples per step", ge=1)

    def epochs_of_data(self, samples: int) -> float:
        return float(self.epochs)

    def check_samples(self, samples: int, dataset: str) -> None:
        if not samples:
            raise IncompatibleError(f"training {self}: {dataset} has no samples in its train split")

    def fit(self, model: torch.nn.Module, dataset: Dataset, seed: int, part: Part) -> History:
        training = Training(model, dataset, self.lr, self.batch_size, seed)
        training.resume(part.stored)
        with Progress(self.epochs, "training epochs") as progress, part.stepping():
            progress.advance(training.epoch)
            for _ in part.steps(lambda: training.epoch < self.epochs, training.state):
                if training.step():
                    progress.advance(loss=training.history.train_loss[-1])
        return training.history


class Training:
    """State of a training between its steps.

    Every step draws its random numbers (for dropout, for example) from its own stream. A last
    batch of one sample is joined to the one before.
    """

    def __init__(
        self, network: torch.nn.Module, dataset: Dataset, lr: float, batch_size: int, seed: int
    ) -> None:
        self.network, self.dataset, self.seed = network, dataset, seed
        self.optimizer = torch.optim.Adam(network.parameters(), lr=lr)
        self.samples, self.batch_size = len(dataset.train_labels), batch_size
        self.history = History()
        self.done, self.losses = 0, 0.0
        self.order: np.ndarray | None = None

    @property
    def epoch(self) -> int:
        return len(self.history.train_loss)

    def step(self) -> bool:
        """Train on the next mini-batch; return True if an epoch ended."""
        if self.order is None:
            random = stream(self.seed, "training order", self.epoch)
            self.order = random.permutation(self.samples)
        size = self.batch_size
        if self.samples - self.done - size == 1:  # Batch normalisation needs two samples.
            size += 1
        batch = self.order[self.done : self.done + size]
        inputs = as_inputs(self.network, self.dataset.samples("train", batch))
        labels = torch.from_numpy(self.dataset.labels("train")[batch]).to(inputs.device)
        self.network.train()
        self.optimizer.zero_grad()
        with drawing_from(torch_stream(self.seed, "training step", self.epoch, self.done)):
            with penalties(self.network) as added:
                logits = self.network(inputs)
            loss = torch.nn.functional.cross_entropy(logits, labels)
            loss = sum((penalty.mean() for penalty in added), loss)
            loss.backward()
            self.optimizer.step()
        self.losses += loss.item() * len(batch)
        self.done += len(batch)
        if self.done < self.samples:
            return False
        self.history.append(self.losses / self.samples, test_accuracy(self.network, self.dataset))
        self.done, self.losses, self.order = 0, 0.0, None
        return True

    def state(self) -> State:
        moments = optimizer_state(self.optimizer)
        return {
            "done": self.done,
            "losses": self.losses,
            **self.history.state(),
            **{f"network.{name}": value for name, value in self.network.state_dict().items()},
            **{f"optimizer.{name}": value for name, value in moments.items()},
        }

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        if not state:
            return
        self.done, self.losses = int(state["done"]), float(state["losses"])
        self.history.resume(state)
        tensors = {name: torch.from_numpy(value) for name, value in state.items()}
        self.network.load_state_dict(strip_prefix("network", tensors))
        resume_optimizer(self.optimizer, strip_prefix("optimizer", tensors))
