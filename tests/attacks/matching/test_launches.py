"""On a GPU an evaluation starts few kernels and waits for none; counted on the virtual GPU."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gleak.artifacts.protocol import Protocol
from gleak.attacks.matching import choice, chunks, search
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.optimizers import Evaluation
from gleak.attacks.matching.problem import CodedProblem, Problem
from gleak.attacks.matching.search import Records, Search
from gleak.attacks.observation import Observation
from gleak.core.registry import load, parse
from gleak.rehearsal.rehearse_cells import Rehearsal
from gleak.runtime.gpu_loop import GPU_EVALUATIONS
from gleak.runtime.progress import Progress
from gleak.runtime.virtual_gpu import DEVICE, GIGABYTE, VirtualGPU
from gleak.studies.cell import Cell
from gleak.testing.attack_contract import is_search
from gleak.testing.tiny_cells import DATASETS

CAPACITY = 80 * GIGABYTE
SMALL, LARGE = (3, 32, 32), (3, 128, 128)
LOCAL = Protocol(batch_size=16, mini_batch=16, local_steps=5)
LIMITS = {
    "lenet": ("lenet", SMALL, 64, "cpl+labels=known", Protocol(), 150, 300),
    "resnet": (
        *("resnet20+normalise=cifar10", SMALL, 16),
        *("invertgrad+labels=known", Protocol(), 800, 850),
    ),
    "rog": ("lenet128", LARGE, 5, "rog+labels=known", LOCAL, 1050, 1100),
}
"""Network, samples, victims, attack, protocol; most launches of an evaluation, and of a search's
step, in which the optimizer and the search's own decisions count, too."""
WITHOUT_WEIGHTS = {"rogs": "rogs+lpips=0"}
SLOW = {"sparse_fi"}
SEARCHES = [
    pytest.param(
        WITHOUT_WEIGHTS.get(name, name), "none", marks=[pytest.mark.slow] if name in SLOW else []
    )
    for name in sorted(load("attack"))
    if is_search(parse("attack", name))
]
UNMIXING = {"cpa", "spear"}
"""Searches of other things than samples."""
OTHERS = [
    ("invertgrad+labels=known", "topk"),
    ("rog+labels=known+distance=signs", "signsgd"),
    ("invertgrad+distance=likelihood+client_model=unrolled", "qsgd"),
    ("cpl+optimizer=gauss_newton+labels=known", "none"),
]


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose methods without trying them, as values are unknown."""
    monkeypatch.setattr(choice, "_batches", lambda *_: [])


def problem_of(observation: Observation, attack: str) -> Problem:
    parts = parse("attack", attack).parts()
    problem = GradientMatching.of(observation, parts)
    coder = parts.code.coder(observation)
    return problem if coder is None else CodedProblem.of(problem, coder)


def observation_of(
    model: str, shape: tuple[int, ...], victims: int, protocol: Protocol
) -> Observation:
    """Return an observation without values."""
    network = parse("model", model).build(shape, 10).eval().requires_grad_(False).to(DEVICE)
    return Observation(
        update={
            name: torch.empty(victims, 1, *value.shape, device=DEVICE)
            for name, value in network.named_parameters()
        },
        sent={},
        model=network,
        modality="image",
        input_shape=shape,
        classes=10,
        protocol=protocol,
        granted={"labels": torch.empty(victims, protocol.batch_size, device=DEVICE).long()},
        victim_ids=np.arange(victims),
        seed=0,
    )


@pytest.mark.parametrize("case", LIMITS)
def test_an_evaluation_starts_few_kernels(case: str) -> None:
    *network, victims, attack, protocol, most, _ = LIMITS[case]
    with VirtualGPU(CAPACITY) as gpu:
        problem = problem_of(observation_of(*network, victims, protocol), attack)
        points = torch.empty(victims, problem.unknowns, device=DEVICE)
        problem.evaluate(points)
        gpu.launches = gpu.synchronisations = 0
        problem.evaluate(points)
    assert gpu.launches <= most
    assert gpu.synchronisations == 0


@pytest.mark.parametrize("case", LIMITS)
def test_a_search_starts_few_kernels_and_waits_once_in_twenty_evaluations(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    *network, victims, attack, protocol, _, most = LIMITS[case]
    monkeypatch.setattr(search, "evaluations_between_reads", lambda device: GPU_EVALUATIONS)
    with VirtualGPU(CAPACITY) as gpu, Progress(100, "test") as progress:
        problem = problem_of(observation_of(*network, victims, protocol), attack)
        records = Records((victims, *problem.shape), 100, most_shown=0)
        found = Search(problem, lambda *_: torch.empty(problem.unknowns, device=DEVICE), records)
        found._advance()
        gpu.launches = gpu.synchronisations = 0
        found._advance()
        assert gpu.launches <= most * GPU_EVALUATIONS
        assert gpu.synchronisations == 0
        monkeypatch.setattr(found, "_see_best", lambda *_: None)  # all seem to have finished
        found._look(progress)
        assert gpu.synchronisations == 1


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the synchronisations of each evaluation, the second one at the same points."""
    counts: list[int] = []

    def counting(evaluate: Callable[[Any, Tensor], Evaluation]) -> Callable[..., Evaluation]:
        def evaluate_twice(problem: Problem, points: Tensor) -> Evaluation:
            evaluate(problem, points)
            gpu = VirtualGPU._active[-1]
            before = gpu.synchronisations
            evaluation = evaluate(problem, points)
            counts.append(gpu.synchronisations - before)
            return evaluation

        return evaluate_twice

    kinds = [Problem]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if "evaluate" in vars(kind):
            monkeypatch.setattr(kind, "evaluate", counting(vars(kind)["evaluate"]))
    return counts


@pytest.mark.parametrize(("attack", "defense"), [*SEARCHES, *OTHERS])
def test_an_evaluation_waits_for_no_kernel(
    attack: str,
    defense: str,
    waits: list[int],
    fitting_model: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The memory that it takes is measured, too."""
    monkeypatch.setattr(chunks, "CAUTION", 10**9)
    caplog.set_level(logging.INFO, chunks.__name__)
    spec = parse("attack", attack)
    modality = min(spec.modalities)
    client = "epochs" if spec.joins_epochs else "fedsgd"
    if getattr(spec, "client_model", "") == "unrolled":
        client = "fedavg+local_steps=2"
    levels = {
        "crafting": spec.crafting or "honest",
        "client": f"{client}+batch_size=2+victims=3",
        "defense": defense,
        "attack": attack,
    }
    model = fitting_model(modality, **levels)
    levels |= {"dataset": DATASETS[modality], "model": model, "training": "untrained"}
    found = Rehearsal(CAPACITY, Path("nowhere")).cell(Cell.parse(levels))
    assert found.fault == ""
    assert waits or attack in UNMIXING
    assert not any(waits)
    assert "measuring it failed" not in caplog.text
