"""Cost of the matching engine on one core; run by `make bench`.

Seconds are CPU seconds of this process, the least of three runs, with the inference of labels at
the start of an attack; the check of methods, which a job makes once, is made before. Before each
run plain autograd does the same for one victim, without weights of layers. `extra_info` of each
result holds the milliseconds per victim and evaluation that docs/results/speed.md speaks of, their
ratio to those of plain autograd, the peak memory of the process, and the numbers of kernels that an
evaluation starts and waits for on a GPU, counted on the virtual one.
"""

from __future__ import annotations

import resource
import time
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.conftest import Compare
from benchmarks.plain_autograd import seconds_of_matching
from gleak.artifacts.protocol import Protocol
from gleak.attacks.matching.engine import match
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.gradients import ClientTraining, LoopedGradients
from gleak.attacks.matching.parts import Parts
from gleak.attacks.matching.priors import TotalVariation
from gleak.attacks.observation import Observation
from gleak.core.registry import parse
from gleak.runtime.device import prepare_cpu
from gleak.runtime.virtual_gpu import DEVICE, GIGABYTE, VirtualGPU


@pytest.fixture(autouse=True)
def one_core():
    prepare_cpu(1)


def observe(model: str, victims: int, shape: tuple[int, ...], classes: int = 10) -> Observation:
    """Random victims of a network with the uniform initialisation."""
    torch.manual_seed(0)
    network = parse("model", model).build(shape, classes)
    for parameter in network.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    client = parse("client", "fedsgd")
    sent = [
        client.compute(network, torch.rand(1, *shape), torch.randint(classes, (1,)))
        for _ in range(victims)
    ]
    return Observation(
        update={name: torch.stack([update[name] for update in sent]) for name in sent[0]},
        sent={},
        model=network.eval().requires_grad_(False),
        modality="image",
        input_shape=shape,
        classes=classes,
        protocol=Protocol(),
        granted={},
        victim_ids=np.arange(victims),
        seed=0,
    )


def parts(optimizer: str, distance: str, iterations: int, **others: object) -> Parts:
    """An attack that spends its whole budget: no threshold, no restarts."""
    return Parts(
        start=parse("start", "patterned"),
        labels="argmin",
        distance=parse("distance", distance),
        optimizer=parse("optimizer", optimizer),
        iterations=iterations,
        **others,
    )


def measure(benchmark, compare: Compare, observation: Observation, assembled: Parts) -> None:
    """Time the attack and note its cost for each victim and evaluation."""
    spent: list[float] = []
    plain: list[float] = []
    sent = [values[0] for values in observation.update.values()]
    smoothing = [one for one in assembled.used_priors if isinstance(one, TotalVariation)]
    variation = smoothing[0].weight if smoothing else None

    def run_plain() -> None:
        each = seconds_of_matching(
            observation.model,
            sent,
            observation.input_shape,
            optimizer=assembled.optimizer.name,
            distance=assembled.distance.name,
            iterations=min(assembled.iterations, 20),
            variation=variation,
        )
        plain.append(each)

    def run() -> None:
        began = time.process_time()
        match(observation, assembled)
        spent.append(time.process_time() - began)

    benchmark.pedantic(run, setup=run_plain, rounds=3, warmup_rounds=1)
    evaluations = assembled.optimizer.evaluations_per_iteration * assembled.iterations + 1
    each = min(spent) / observation.victims / evaluations
    benchmark.extra_info["ms_per_victim_and_evaluation"] = round(1e3 * each, 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    benchmark.extra_info["peak_memory_mb"] = round(peak)
    launches, waits = kernels_of_evaluation(observation, assembled)
    benchmark.extra_info.update(launches=launches, synchronisations=waits)
    kernels = f"on a GPU {launches} launches, {waits} synchronisations"
    compare(each, min(plain), f"per victim and evaluation, {kernels}")


def kernels_of_evaluation(observation: Observation, assembled: Parts) -> tuple[int, int]:
    """Count the kernels that an evaluation starts on a GPU, and those that it waits for."""
    there = replace(
        observation,
        update={name: value.to(DEVICE) for name, value in observation.update.items()},
        model=deepcopy(observation.model).to(DEVICE),
        verified_methods={},
    )
    with VirtualGPU(80 * GIGABYTE) as gpu:
        problem = GradientMatching.of(there, assembled)
        points = torch.empty(there.victims, problem.unknowns, device=DEVICE)
        problem.evaluate(points)
        gpu.launches = gpu.synchronisations = 0
        problem.evaluate(points)
    return gpu.launches, gpu.synchronisations


@pytest.mark.parametrize("victims", [1, 8, 64])
@pytest.mark.parametrize(
    ("optimizer", "distance", "iterations"), [("lbfgs", "l2", 20), ("adam", "cosine", 100)]
)
@pytest.mark.parametrize("model", ["lenet", "fc2"])
def test_small_networks(benchmark, compare, model, optimizer, distance, iterations, victims):
    observation = observe(model, victims, (3, 32, 32))
    measure(benchmark, compare, observation, parts(optimizer, distance, iterations))


@pytest.mark.parametrize("victims", [1, 8])
def test_signed_steps_with_total_variation_in_the_box(benchmark, compare, victims):
    """InvertGrad on LeNet, and the same by plain autograd."""
    priors = [TotalVariation(0.015)]
    assembled = parts("adam+signed=true", "cosine", 100, priors=priors, box=True)
    measure(benchmark, compare, observe("lenet", victims, (3, 32, 32)), assembled)


@pytest.mark.parametrize("victims", [1, 8])
def test_a_network_of_the_size_of_a_resnet20(benchmark, compare, victims):
    """LeNet eight times as wide: 31 million multiply-adds, where ResNet20 has 41."""
    observation = observe("lenet+width=96", victims, (3, 32, 32))
    measure(benchmark, compare, observation, parts("adam", "cosine", 10))


@pytest.mark.parametrize(
    ("model", "victims"),
    [("resnet20", 1), ("resnet20", 4), ("resnet20", 16), ("resnet20+width=4", 1), ("resnet18", 1)],
)
def test_residual_networks_with_weighted_layers(benchmark, compare, model, victims):
    """What AGIC does in an iteration, also as a share of plain automatic differentiation's time.

    The share is measured in one run, since seconds depend on what else the machine does.
    """
    attack = parse("attack", "agic+iterations=10+labels=argmin+start=patterned")
    observation = observe(f"{model}+normalise=cifar10", victims, (3, 32, 32))
    measure(benchmark, compare, observation, attack.parts())
    problem = GradientMatching.of(observation, attack.parts())
    plain = replace(problem, gradients=LoopedGradients(ClientTraining.of(observation, "one_step")))
    share = evaluation_seconds(problem) / evaluation_seconds(plain)
    benchmark.extra_info["share_of_plain_autograd"] = round(share, 2)


def evaluation_seconds(problem: GradientMatching) -> float:
    """Measure the CPU seconds of an evaluation at random points, the least of ten."""
    points = torch.rand(len(problem.targets), problem.unknowns)
    spent = []
    for _ in range(10):
        began = time.process_time()
        problem.evaluate(points)
        spent.append(time.process_time() - began)
    return min(spent)
