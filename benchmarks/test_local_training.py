"""Clients of 100 local steps beside the same steps in plain PyTorch, in CPU seconds.

Colour images of 32 pixels, one core; the least of alternating repetitions. Plain PyTorch takes the
same batches with `torch.nn.functional.cross_entropy` and its own optimiser.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.optim import SGD, Adam, Optimizer

from benchmarks.conftest import Compare
from gleak.clients.local_training import epoch_batches
from gleak.core.registry import parse
from gleak.runtime.device import prepare_cpu

SHAPE, CLASSES, BATCHES, REPEATS = (3, 32, 32), 10, 10, 5
MODELS = {"lenet": 100, "resnet20": 10}
"""Local steps by model: time grows linearly in them, so the larger one takes fewer."""
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd~momentum=0.9": lambda values: SGD(values, lr=1e-3, momentum=0.9),
    "adam": lambda values: Adam(values, lr=1e-3),
}


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("size", [8, 32])
@pytest.mark.parametrize("name", MODELS)
def test_local_steps(
    benchmark: Any, name: str, size: int, optimizer: str, compare: Compare
) -> None:
    prepare_cpu(1)
    torch.manual_seed(0)
    samples = BATCHES * size
    client = parse(
        "client",
        f"fedavg+batch_size={samples}+mini_batch={size}+local_steps={MODELS[name]}+local_lr=1e-3"
        f"+sends=weights+optimizer={optimizer}",
    )
    model = parse("model", name).build(SHAPE, CLASSES).eval()
    inputs, labels = torch.rand(samples, *SHAPE), torch.randint(CLASSES, (samples,))
    batches = epoch_batches(client.protocol, samples)

    def plain(batches: Iterable[torch.Tensor]) -> None:
        network = deepcopy(model)
        own = OPTIMIZERS[optimizer](network.parameters())
        for batch in batches:
            own.zero_grad()
            functional.cross_entropy(network(inputs[batch]), labels[batch]).backward()
            own.step()

    def simulated() -> None:
        client.compute(model, inputs, labels)

    simulated()
    times = [(seconds(simulated), seconds(lambda: plain(batches))) for _ in range(REPEATS)]
    benchmark.pedantic(simulated)
    ours, theirs = (min(each) for each in zip(*times, strict=True))
    compare(ours, theirs, f"{MODELS[name]} local steps of {size} samples, to plain PyTorch")
