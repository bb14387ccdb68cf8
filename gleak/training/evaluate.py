"""How well a network classifies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from gleak.models.batching import memory_slices

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset


@torch.no_grad()
def test_accuracy(network: nn.Module, dataset: Dataset) -> list[float]:
    """Share of test samples classified correctly; an empty list without test samples."""
    labels = torch.from_numpy(dataset.labels("test"))
    if not len(labels):
        return []
    device = next(network.parameters()).device
    was_training = network.training
    network.eval()
    correct = 0
    for some in memory_slices(len(labels), dataset.shape):
        inputs = torch.from_numpy(dataset.samples("test", some)).to(device)
        correct += int((network(inputs).argmax(1).cpu() == labels[some]).sum())
    network.train(was_training)
    return [correct / len(labels)]
