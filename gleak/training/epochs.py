"""Ordinary training over mini-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from gleak.models.penalties import penalties
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import stream
from gleak.training.base import History
from gleak.training.evaluate import test_accuracy

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset


def run_epochs(
    network: nn.Module, dataset: Dataset, epochs: int, lr: float, batch_size: int, seed: int
) -> History:
    """Train in place with Adam; mean loss and test accuracy after every epoch."""
    history = History()
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    with Progress(epochs, "training epochs") as progress:
        for epoch in range(epochs):
            order = stream(seed, "training order", epoch).permutation(len(dataset.train_labels))
            batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
            network.train()
            losses = [_step(network, optimizer, dataset, batch) * len(batch) for batch in batches]
            history.train_loss.append(sum(losses) / len(order))
            history.test_accuracy += test_accuracy(network, dataset)
            progress.advance(loss=history.train_loss[-1])
    return history


def _step(
    network: nn.Module, optimizer: torch.optim.Optimizer, dataset: Dataset, batch: np.ndarray
) -> float:
    device = next(network.parameters()).device
    inputs = torch.from_numpy(dataset.samples("train", batch)).to(device)
    labels = torch.from_numpy(dataset.labels("train")[batch]).to(device)
    optimizer.zero_grad()
    with penalties(network) as added:
        logits = network(inputs)
    loss = sum((each.mean() for each in added), functional.cross_entropy(logits, labels))
    loss.backward()
    optimizer.step()
    return loss.item()
