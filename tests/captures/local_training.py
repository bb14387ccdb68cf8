"""A client's training in plain torch, as tests capture it."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Optimizer

SHAPE, CLASSES, SAMPLES = (1, 8, 8), 10, 3
Truth = tuple[Tensor, Tensor]


def sgd(model: nn.Module, **options: float) -> SGD:
    return SGD(model.parameters(), **{"lr": 0.1, **options})


def train(model: nn.Module, optimizer: Optimizer, truth: Truth, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(truth[0]), truth[1]).backward()
        optimizer.step()
