"""What `gleak.capture` and a `gleak.Gauge` cost beside a round of 50 local steps, in CPU seconds.

The files of a capture are included; a gauge looks at the update of one step on eight random images.

Batches of 32 colour images of 32 pixels.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import gleak
from benchmarks.conftest import Compare
from gleak.core.registry import parse
from gleak.runtime.device import prepare_cpu

SHAPE, CLASSES, BATCH, STEPS, REPEATS = (3, 32, 32), 10, 32, 50, 5


def seconds(
    model: nn.Module,
    steps: int,
    around: Callable[[torch.optim.Optimizer], AbstractContextManager[None]],
) -> float:
    """CPU seconds of steps in a context."""
    inputs, labels = torch.rand(BATCH, *SHAPE), torch.randint(CLASSES, (BATCH,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    start = time.process_time()
    with around(optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return time.process_time() - start


@pytest.mark.parametrize("name", ["lenet", "fc2", "resnet20"])
def test_capture_of_a_round(benchmark: Any, name: str, tmp_path: Path, compare: Compare) -> None:
    prepare_cpu(1)
    model = parse("model", name).build(SHAPE, CLASSES).train()

    def capture(folder: Path) -> float:
        return seconds(model, STEPS, lambda optimizer: gleak.capture(model, optimizer, folder))

    rounds = [
        (seconds(model, STEPS, lambda _: nullcontext()), capture(tmp_path / str(number)))
        for number in range(REPEATS)
    ]
    plain, captured = map(min, zip(*rounds, strict=True))
    benchmark.pedantic(capture, (tmp_path / "timed",))
    compare(captured - plain, plain, f"capture of {name}, to a round")


@pytest.mark.parametrize("name", ["lenet", "fc2", "resnet20"])
def test_gauge_of_a_round(benchmark: Any, name: str, compare: Compare) -> None:
    prepare_cpu(1)
    model = parse("model", name).build(SHAPE, CLASSES)
    truth = torch.rand(8, *SHAPE), torch.arange(8)
    sent = gleak.compute_update(model, *truth, client="fedavg+local_lr=0.1+sends=weights")
    before = model.state_dict()
    after = {key: value + sent.get(key, 0) for key, value in before.items()}
    gauge = gleak.Gauge(model, SHAPE, batch_size=8, local_lr=0.1)

    def measure() -> float:
        start = time.process_time()
        gauge(before, after, truth)
        return time.process_time() - start

    benchmark.pedantic(measure)
    measured = min(measure() for _ in range(REPEATS))
    plain = seconds(model, STEPS, lambda _: nullcontext())
    compare(measured, plain, f"gauge on {name}, to a round")
