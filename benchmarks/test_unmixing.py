"""Cost of unmixing on one core; run by `make bench`.

Seconds are CPU seconds of this process for one batch of FC-2. `extra_info` of each result holds
their ratio to one gradient of the batch by plain autograd in the same run, and the mean PSNR on
crops of the bundled photographs, which resemble each other more than a batch of CIFAR-10 does:
compare costs by it, not attacks.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from benchmarks.conftest import Compare
from benchmarks.plain_autograd import seconds_of_gradient
from gleak.artifacts.protocol import Protocol
from gleak.attacks.observation import Observation
from gleak.core.registry import parse
from gleak.metrics.reconstruction.assignment import assign_samples, gather
from gleak.runtime.device import prepare_cpu

SIDE = 32


@pytest.fixture(autouse=True)
def one_core():
    prepare_cpu(1)


@pytest.fixture(scope="module")
def photos():
    return parse("dataset", f"photos+size={SIDE}").load(None, seed=0)


def observe(inputs: torch.Tensor, labels: torch.Tensor, classes: int) -> Observation:
    """One victim of an untrained FC-2."""
    torch.manual_seed(0)
    network = parse("model", "fc2").build(tuple(inputs.shape[1:]), classes)
    sent = parse("client", "fedsgd").compute(network, inputs, labels)
    return Observation(
        update={name: value.detach()[None] for name, value in sent.items()},
        sent={},
        model=network.eval().requires_grad_(False),
        modality="image",
        input_shape=tuple(inputs.shape[1:]),
        classes=classes,
        protocol=Protocol(batch_size=len(inputs), mini_batch=len(inputs)),
        granted={},
        victim_ids=np.arange(1),
        seed=0,
    )


@pytest.mark.parametrize("samples", [8, 32, 64, 128])
@pytest.mark.parametrize("attack", ["cpa+iterations=500+lr=0.01+tv=10+mi=0.1", "cpa_edges"])
def test_one_batch(benchmark, compare: Compare, photos, attack: str, samples: int):
    chosen = np.random.default_rng(0).permutation(len(photos.test_labels))[:samples]
    inputs = photos.samples("test", chosen)
    labels = torch.from_numpy(photos.labels("test")[chosen])
    observation = observe(torch.from_numpy(inputs), labels, photos.classes)
    spec = parse("attack", attack)
    started = time.process_time()
    found = benchmark.pedantic(spec.reconstruct, args=(observation,), rounds=1)
    spent = time.process_time() - started
    network, batch = observation.model, torch.from_numpy(inputs)
    plain = min(seconds_of_gradient(network, batch, labels) for _ in range(3))
    compare(spent, plain, "(plain: one gradient of the batch)")
    order = assign_samples(inputs[None], found.inputs)
    matched = gather(found.inputs, order, np.nan)[0]
    errors = np.square(matched - inputs).mean((1, 2, 3))
    benchmark.extra_info["psnr"] = float(np.mean(-10 * np.log10(errors)))
