from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.artifacts.dataset import Dataset
from gleak.models.layers import Penalised
from gleak.runtime.checkpointing import Journal
from gleak.training.central import Central


class Costly(Penalised):
    """The inputs as they are, at the cost of their mean."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs

    def penalty(self, inputs: Tensor) -> Tensor:
        return inputs.square().mean(1)


def test_penalties_of_layers_are_minimised_with_the_cross_entropy(images: Dataset) -> None:
    """The first of its steps, which takes all samples, has the loss of the first parameters."""
    features = images.samples("train", slice(None))[0].size
    network = nn.Sequential(nn.Flatten(), nn.Linear(features, images.classes), Costly())
    inputs = torch.from_numpy(images.samples("train", slice(None)))
    labels = torch.from_numpy(images.labels("train"))
    with torch.no_grad():
        logits = network(inputs)
    expected = functional.cross_entropy(logits, labels) + logits.square().mean()
    spec = Central(epochs=1, lr=0.1, batch_size=len(labels))
    history = spec.fit(network, images, 0, Journal().part())
    torch.testing.assert_close(torch.tensor(history.train_loss[0]), expected)
