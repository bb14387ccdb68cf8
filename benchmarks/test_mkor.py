"""Cost of MKOR on VGG-16 at 224 x 224 on one core; run by `make bench`.

Seconds are CPU seconds of this process, for one image of each class of the bundled photographs: the
client's gradient, and decoding it once it is read. `extra_info` holds seconds for each image, their
ratio to a gradient by plain autograd in the same run, the mean PSNR and the peak of memory, which
only grows: run one test at a time to compare it.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.conftest import Compare
from benchmarks.plain_autograd import seconds_of_gradient
from gleak.artifacts.protocol import Protocol
from gleak.attacks.mkor import MKORAttack
from gleak.attacks.observation import Observation
from gleak.core.registry import parse
from gleak.metrics.reconstruction.assignment import assign_samples, gather
from gleak.runtime.device import prepare_cpu

SHAPE, CLASSES = (3, 224, 224), 10


@dataclass
class Case:
    """A crafted network, a batch, and what the client sent of it."""

    network: nn.Module
    secret: dict[str, np.ndarray]
    inputs: Tensor
    sent: dict[str, Tensor]


def client(network: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    spec = parse("client", f"fedsgd+batch_size={CLASSES}+labels=unique+loss=nll_raw")
    return spec.compute(network, inputs, torch.arange(CLASSES))


@pytest.fixture(scope="module")
def case() -> Case:
    prepare_cpu(1)
    torch.manual_seed(0)
    network = parse("model", "vgg16+normalise=none").build(SHAPE, CLASSES).eval()
    secret = parse("crafting", "mkor").craft_network(network, SHAPE, 10, seed=0)
    photos = parse("dataset", "photos+size=224+crops=1").load(None, seed=0)
    inputs = torch.from_numpy(photos.samples("test", np.argsort(photos.test_labels)))
    return Case(network, secret, inputs, client(network.requires_grad_(), inputs))


def timed(benchmark, compare: Compare, case: Case, work):
    plain = seconds_of_gradient(case.network, case.inputs, torch.arange(CLASSES)) / CLASSES
    started = time.process_time()
    made = benchmark.pedantic(work, rounds=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    seconds = (time.process_time() - started) / CLASSES
    benchmark.extra_info.update({"cpu_seconds_an_image": seconds, "peak_memory_mb": peak})
    compare(seconds, plain, "an image (plain: its gradient)")
    return made


def test_the_client(benchmark, compare: Compare, case: Case):
    timed(benchmark, compare, case, lambda: client(case.network.requires_grad_(), case.inputs))


def test_decoding(benchmark, compare: Compare, case: Case):
    observation = Observation(
        update={name: value.detach()[None] for name, value in case.sent.items()},
        sent={},
        model=case.network,
        modality="image",
        input_shape=SHAPE,
        classes=CLASSES,
        protocol=Protocol(batch_size=CLASSES, mini_batch=CLASSES, loss="nll_raw"),
        granted={},
        victim_ids=np.arange(1),
        seed=0,
        secret=case.secret,
    )
    found = timed(benchmark, compare, case, lambda: MKORAttack().reconstruct(observation))
    truth = case.inputs.numpy()[None]
    errors = (gather(found.inputs, assign_samples(truth, found.inputs), np.nan) - truth) ** 2
    benchmark.extra_info["psnr"] = float(np.mean(-10 * np.log10(errors.mean(axis=(2, 3, 4)))))
