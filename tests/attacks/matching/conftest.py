"""A problem with a known answer, and observations of tiny clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.protocol import Protocol
from gleak.attacks.matching.distances import L2
from gleak.attacks.matching.optimizers import Adam, Evaluation
from gleak.attacks.matching.parts import Parts
from gleak.attacks.matching.starts import Uniform
from gleak.attacks.observation import Observation
from gleak.core.registry import parse


@dataclass
class Bowl:
    """Stands in for a problem: squared distances of V points to targets, NaN beyond a cliff."""

    parts: Parts
    observed: dict[str, Tensor]
    shape: tuple[int, ...] = (1, 2)
    cliff: float = 50.0

    @property
    def values(self) -> int:
        return 2

    def keep(self, rows: Tensor) -> Bowl:
        return replace(self, observed={key: value[rows] for key, value in self.observed.items()})

    def inputs(self, points: Tensor) -> Tensor:
        return points.unflatten(1, self.shape)

    def clip(self, points: Tensor) -> None:
        points.clamp_(0, 1)

    def evaluate(self, points: Tensor) -> Evaluation:
        gap = points - self.observed["target"]
        distance = gap.square().sum(1)
        distance = torch.where(gap.abs().amax(1) > self.cliff, torch.nan, distance)
        return Evaluation(distance, distance, 2 * gap)


@pytest.fixture
def make_parts() -> Callable[..., Parts]:
    """Return Adam on L2 from uniform values for 60 iterations, with any component changed."""

    def make(**parts: object) -> Parts:
        standard = {
            "start": Uniform(),
            "labels": "known",
            "distance": L2(),
            "optimizer": Adam(lr=0.1),
            "iterations": 60,
        }
        return Parts(**{**standard, **parts})

    return make


@pytest.fixture
def make_bowl(make_parts: Callable[..., Parts]) -> Callable[..., Bowl]:
    """Return a bowl for each target, with any component changed."""

    def make(targets: list[list[float]], **parts: object) -> Bowl:
        return Bowl(make_parts(**parts), {"target": torch.tensor(targets)})

    return make


@pytest.fixture
def make_observation() -> Callable[..., Observation]:
    """Return gradients of V victims' mean loss at a random network, and their samples."""

    def make(
        model: str = "lenet+width=3",
        victims: int = 3,
        samples: int = 2,
        spread: float = 0.5,
        **fields: object,
    ) -> tuple[Observation, Tensor, Tensor]:
        stream = torch.Generator().manual_seed(4)
        shape = (6,) if model.startswith("mlp") else (3, 8, 8)
        network = parse("model", model).build(shape, 4).eval()
        weights = torch.Generator().manual_seed(5)
        for parameter in network.parameters():
            nn.init.uniform_(parameter, -spread, spread, generator=weights)
        inputs = torch.rand(victims, samples, *shape, generator=stream)
        labels = torch.randint(4, (victims, samples), generator=stream)
        client = parse("client", "fedsgd")
        updates = [client.compute(network, *batch) for batch in zip(inputs, labels, strict=True)]
        standard = {
            "sent": {},
            "update": {key: torch.stack([one[key] for one in updates]) for key in updates[0]},
            "model": network.requires_grad_(False),
            "modality": "image" if len(shape) == 3 else "tabular",
            "input_shape": shape,
            "classes": 4,
            "protocol": Protocol(batch_size=samples, mini_batch=samples),
            "granted": {"labels": labels},
            "victim_ids": np.arange(victims),
            "seed": 0,
        }
        return Observation(**{**standard, **fields}), inputs, labels

    return make
