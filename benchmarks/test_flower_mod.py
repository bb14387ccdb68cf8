"""What a `GaugingMod` adds to the rounds of a Flower client that trains 50 steps, in CPU seconds.

Overhead and training are measured in the same rounds, messages included, from the first round on,
with the first measurement deferred until a share of 5% pays for what it is expected to take.
Batches of 32 photographs of 32 pixels, which the gauge is given. Random images take it longer:
their edges are not sparse, so `cpa_edges` takes more of its iterations (docs/results/speed.md).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import gleak
from benchmarks.conftest import Compare
from gleak.core.registry import parse
from gleak.runtime.device import prepare_cpu

pytest.importorskip("flwr", reason="Flower is an extra, not installed: make test-flower")

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.app.metadata import Metadata

from gleak.captures.frameworks.flower_mods import Budgeted, Deferred, GaugingMod

SHAPE, CLASSES, BATCH, STEPS, LR = (3, 32, 32), 10, 32, 50, 1e-3
LARGEST = 255
SHARE = 0.05
EXPECTED = {"lenet": 0.6, "fc2": 5.0, "resnet20": 1.5}
"""Seconds of the first measurement; FC-2 has the default of `Deferred`."""


@dataclass
class Client:
    """A client whose CPU seconds of training are counted."""

    model: nn.Module
    training: float = 0.0
    truth: tuple[torch.Tensor, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        photos = parse("dataset", "photos+size=32").load(None, seed=0)
        chosen = torch.randperm(len(photos.test_inputs))[:BATCH]
        images, labels = map(torch.from_numpy, (photos.test_inputs, photos.test_labels))
        self.truth = images[chosen].float() / LARGEST, labels[chosen].long()

    def __call__(self, message: Message, context: Context) -> Message:
        start = time.process_time()
        self.model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(self.model.parameters(), lr=LR)
        for _ in range(STEPS):
            optimizer.zero_grad()
            functional.cross_entropy(self.model(self.truth[0]), self.truth[1]).backward()
            optimizer.step()
        arrays, metrics = (
            ArrayRecord(self.model.state_dict()),
            MetricRecord({"num-examples": BATCH}),
        )
        reply = Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
        self.training += time.process_time() - start
        return reply


def broadcast(state: dict[str, torch.Tensor], number: int) -> Message:
    """The message that asks a client to train."""
    content = RecordDict(
        {"arrays": ArrayRecord(state), "config": ConfigRecord({"server-round": number})}
    )
    addresses = {"run_id": 1, "message_id": str(number), "src_node_id": 1, "dst_node_id": 2}
    rest = {"reply_to_message_id": "", "group_id": "", "created_at": time.time(), "ttl": 60.0}
    return Message(content, metadata=Metadata(**addresses, **rest, message_type="train"))


@pytest.mark.parametrize("name", EXPECTED)
def test_budget_of_a_client(benchmark: Any, name: str, compare: Compare) -> None:
    prepare_cpu(1)
    torch.manual_seed(0)
    client = Client(parse("model", name).build(SHAPE, CLASSES))
    gauge = gleak.Gauge(client.model, SHAPE, BATCH, LR, local_steps=STEPS)
    measuring = GaugingMod(gauge, lambda _: client.truth)
    mod = Budgeted(measuring, SHARE, first=Deferred(EXPECTED[name]))
    context = Context(1, 2, {}, RecordDict(), {})
    state = {key: value.clone() for key, value in client.model.state_dict().items()}
    overheads, trainings, measured = [], [], []

    def take_part(number: int) -> None:
        message = broadcast(state, number)
        before, start = client.training, time.process_time()
        reply = mod(message, context, client)
        trainings.append(client.training - before)
        overheads.append(time.process_time() - start - trainings[-1])
        if reply.content["metrics"]["gleak-age"] == 0:
            measured.append(number)

    benchmark.pedantic(take_part, (1,))
    while not measured:
        take_part(len(trainings) + 1)
    rounds = zip(accumulate(overheads), accumulate(trainings), strict=True)
    most = max(spent / trained for spent, trained in rounds)
    costs = ", ".join(f"{overheads[number - 1]:.2f} s in round {number}" for number in measured)
    print(f"{name}: at most {most:.2%} after any round; measured: {costs}")
    compare(
        sum(overheads), client.training, f"mod on {name} in {len(trainings)} rounds, to training"
    )
