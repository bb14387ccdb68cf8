"""Mini-batch training of a network, and its test accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gleak.core.lazy import torch
from gleak.models.batching import memory_slices
from gleak.models.parameters import as_inputs
from gleak.models.sample_losses import penalties
from gleak.runtime.checkpointing import Part, State, optimizer_state, resume_optimizer, strip_prefix
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import drawing_from, stream, torch_stream
from gleak.training.base import History

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset


def run_epochs(
    network: torch.nn.Module,
    dataset: Dataset,
    epochs: int,
    lr: float,
    batch_size: int,
    seed: int,
    part: Part,
) -> History:
    """Train a network in place with Adam.

    Args:
        network: changed in place.
        dataset: dataset with the train split.
        epochs: epochs over that split.
        lr: learning rate.
        batch_size: samples per step.
        seed: seed of the run.
        part: part of the job's checkpoint; the training resumes from it.

    Returns:
        Mean loss and test accuracy after every epoch.
    """
    training = Training(network, dataset, lr, batch_size, seed)
    training.resume(part.stored)
    with Progress(epochs, "training epochs") as progress, part.stepping():
        progress.advance(training.epoch)
        for _ in part.steps(lambda: training.epoch < epochs, training.state):
            if training.step():
                progress.advance(loss=training.history.train_loss[-1])
    return training.history


class Training:
    """State of a training between its steps.

    Every step draws its random numbers (for dropout, for example) from its own stream.
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
        """Number of completed epochs."""
        return len(self.history.train_loss)

    def step(self) -> bool:
        """Train on the next mini-batch; return True if an epoch ended."""
        if self.order is None:
            random = stream(self.seed, "training order", self.epoch)
            self.order = random.permutation(self.samples)
        batch = self.order[self.done : self.done + self.batch_size]
        with drawing_from(torch_stream(self.seed, "training step", self.epoch, self.done)):
            self.losses += self._train(batch) * len(batch)
        self.done += len(batch)
        if self.done < self.samples:
            return False
        self.history.append(self.losses / self.samples, test_accuracy(self.network, self.dataset))
        self.done, self.losses, self.order = 0, 0.0, None
        return True

    def _train(self, batch: np.ndarray) -> float:
        device = next(self.network.parameters()).device
        inputs = as_inputs(self.network, self.dataset.samples("train", batch))
        labels = torch.from_numpy(self.dataset.labels("train")[batch]).to(device)
        self.network.train()
        self.optimizer.zero_grad()
        with penalties(self.network) as added:
            logits = self.network(inputs)
        loss = sum(
            (each.mean() for each in added), torch.nn.functional.cross_entropy(logits, labels)
        )
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def state(self) -> State:
        """Return the state from which the next step can be computed."""
        moments = optimizer_state(self.optimizer)
        return {
            "done": self.done,
            "losses": self.losses,
            **self.history.state(),
            **{f"network.{name}": value for name, value in self.network.state_dict().items()},
            **{f"optimizer.{name}": value for name, value in moments.items()},
        }

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state from that of `state`, unless it is empty."""
        if not state:
            return
        self.done, self.losses = int(state["done"]), float(state["losses"])
        self.history.resume(state)
        tensors = {name: torch.from_numpy(value) for name, value in state.items()}
        self.network.load_state_dict(strip_prefix("network", tensors))
        resume_optimizer(self.optimizer, strip_prefix("optimizer", tensors))


def test_accuracy(network: torch.nn.Module, dataset: Dataset) -> list[float]:
    """Compute the share of correct test samples; an empty list without test samples."""
    with torch.no_grad():
        labels = torch.from_numpy(dataset.labels("test"))
        if not len(labels):
            return []
        was_training = network.training
        network.eval()
        correct = 0
        for chunk in memory_slices(len(labels), dataset.shape):
            inputs = as_inputs(network, dataset.samples("test", chunk))
            correct += int((network(inputs).argmax(1).cpu() == labels[chunk]).sum())
        network.train(was_training)
        return [correct / len(labels)]
