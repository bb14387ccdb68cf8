"""Chunks of victims: their size, measured without values, and shortages of memory."""

from __future__ import annotations

import logging
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gleak.attacks.matching import chunks, engine
from gleak.attacks.matching.chunks import (
    in_chunks,
    measured,
    most_within,
    part_of,
    shortage,
    victims_in_memory,
)
from gleak.attacks.matching.engine import match
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.gradients import ClientTraining, LoopedGradients
from gleak.attacks.matching.quasi_newton import LBFGS
from gleak.core.errors import GleakError, StoppedError
from gleak.runtime.checkpointing import Journal, Part

Make = Callable[..., Any]
CPU = (
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    RuntimeError("could not create a primitive descriptor for the convolution"),
    RuntimeError("could not execute a primitive"),
)
GPU = (
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("Unable to find a valid cuDNN algorithm to run convolution"),
    RuntimeError("GET was unable to find an engine to execute this computation"),
    RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate`"),
    RuntimeError("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate`"),
)
OTHERS = (
    RuntimeError("shapes do not match"),
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
)


class Memory:
    """Work that fails on more victims than fit into memory."""

    def __init__(self, fits: int, error: BaseException) -> None:
        self.fits, self.error, self.tried = fits, error, []

    def __call__(self, some: slice) -> slice:
        self.tried.append(some.stop - some.start)
        if self.tried[-1] > self.fits:
            raise self.error
        return some


@pytest.mark.parametrize("error", [*CPU, *GPU], ids=str)
def test_ranges_are_halved_until_they_fit(error: BaseException) -> None:
    memory = Memory(3, error)
    done = in_chunks(11, 100, memory, Journal().part())
    assert memory.tried == [11, 5, 2, 2, 2, 2, 2, 1]
    assert [row for some in done for row in range(some.start, some.stop)] == list(range(11))


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_other_errors_end_it(error: Exception) -> None:
    memory = Memory(0, error)
    assert shortage(error) is None
    with pytest.raises(RuntimeError) as caught:
        in_chunks(4, 4, memory, Journal().part())
    assert caught.value is error
    assert memory.tried == [4]


@pytest.mark.parametrize("error", [*CPU, *GPU], ids=str)
def test_work_on_one_victim_is_divided_on_a_gpu_alone(error: BaseException) -> None:
    """Until it cannot be divided, when the error is told."""
    memory, left = Memory(0, error), [True, True, False]
    with pytest.raises(GleakError, match="not even one victim fits into memory") as caught:
        in_chunks(4, 4, memory, Journal().part(), lambda: left.pop(0))
    assert str(error) in str(caught.value)
    assert memory.tried == ([4, 2, 1, 1, 1] if error in GPU else [4, 2, 1])


def test_what_failed_is_freed_before_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames of an error hold tensors until it has been handled."""

    class Tensors:
        alive = 0

        def __init__(self) -> None:
            Tensors.alive += 1

        def __del__(self) -> None:
            Tensors.alive -= 1

    emptied: list[int] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(Tensors.alive))

    def work(rows: slice) -> None:
        held = Tensors()
        if rows.stop - rows.start > 1:
            raise torch.OutOfMemoryError(f"CUDA out of memory {held is None}")

    in_chunks(4, 4, work, Journal().part())
    assert emptied == [0, 0]


class Steps:
    """Work of three steps on each range, which ends when some range is at its second."""

    def __init__(self, part: Part, stopped: slice | None = None) -> None:
        self.part, self.stopped = part, stopped
        self.taken: dict[tuple[int, int], int] = {}

    def __call__(self, rows: slice) -> list[int]:
        part, key = part_of(self.part, rows), (rows.start, rows.stop)
        stored = part.stored
        number, found = int(stored.get("number", 0)), stored.get("found", np.zeros(0))
        self.taken[key] = 0
        with part.stepping():
            while number < 3:
                if rows == self.stopped and number == 1:
                    os.kill(os.getpid(), signal.SIGTERM)
                part.step(lambda number=number: {"number": number, "live": np.arange(*key)})
                self.taken[key] += 1
                number, found = number + 1, np.arange(*key)
            part.keep({"number": number, "found": found})
        return found.tolist()


@pytest.mark.parametrize(
    ("fits", "taken"),
    [
        (100, {(0, 4): 0, (4, 8): 2, (8, 10): 3}),
        (4, {(0, 4): 0, (4, 8): 2, (8, 10): 3}),
        (3, {(0, 4): 0, (4, 7): 3, (7, 10): 3}),
        (1, {(0, 4): 0} | {(row, row + 1): 3 for row in range(4, 10)}),
    ],
)
def test_a_resumed_job_keeps_finished_ranges_and_takes_no_more_than_fits_now(
    tmp_path: Path, fits: int, taken: dict[tuple[int, int], int]
) -> None:
    """A range that fits goes on at its step; others begin again, whatever is stored of them."""
    path = tmp_path / "checkpoint.h5"
    with pytest.raises(StoppedError), Journal(path) as journal:
        part = journal.part()
        in_chunks(10, 4, Steps(part, slice(4, 8)), part)
    with Journal(path) as journal:
        part = journal.part()
        work = Steps(part)
        done = in_chunks(10, fits, work, part)
        assert not [key for key in journal._kept if key.endswith("live")]
    assert work.taken == taken
    assert [row for some in done for row in some] == list(range(10))


def test_ranges_before_a_shortage_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.h5"
    with pytest.raises(StoppedError), Journal(path) as journal:
        part = journal.part()
        work = Steps(part, slice(6, 8))

        def short(rows: slice) -> list[int]:
            if rows == slice(4, 8):
                raise torch.OutOfMemoryError
            return work(rows)

        in_chunks(10, 4, short, part)
    with Journal(path) as journal:
        part = journal.part()
        work = Steps(part)
        in_chunks(10, 4, work, part)
    assert work.taken == {(0, 4): 0, (4, 6): 0, (6, 8): 2, (8, 10): 3}


@pytest.mark.parametrize(
    ("each", "constant", "most", "budget", "expected"),
    [
        (10, 0, math.inf, 1000, 100),
        (10, 300, math.inf, 1000, 70),
        (10, 300, math.inf, 310, 1),
        (10, 300, math.inf, 309, 0),
        (10, 0, math.inf, 10**6, 500),
        (10, 0, 200, 300, 500),
        (10, 0, 200, 199, 19),
    ],
)
def test_the_most_victims_follow_from_a_few_measurements(
    each: int, constant: int, most: float, budget: int, expected: int
) -> None:
    """Of megabytes in proportion, with a constant, or up to a most that groups of images take."""
    asked: list[int] = []

    def needed(victims: int) -> int:
        asked.append(victims)
        return 10**6 * int(constant + min(most, each * victims))

    found = most_within(budget * 10**6, 500, needed)
    assert 0.95 * expected <= found <= expected
    assert len(asked) <= 4


def problem_of(make_observation: Make, make_parts: Make, **given: Any) -> GradientMatching:
    """State the problem of 300 victims."""
    observation, _, _ = make_observation(victims=300)
    return GradientMatching.of(observation, make_parts(**given))


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is measured however little victims take by the estimate."""
    monkeypatch.setattr(chunks, "CAUTION", 10**9)


@pytest.mark.usefixtures("measures")
def test_fewer_victims_fit_where_histories_are_long_and_all_where_memory_is_ample(
    make_observation: Make, make_parts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitting(history: int) -> int:
        parts = {"optimizer": LBFGS(history=history)}
        return victims_in_memory(problem_of(make_observation, make_parts, **parts), 1)

    assert fitting(100) == 300
    monkeypatch.setattr(chunks, "CPU_BYTES", 2**24)
    assert 300 > fitting(9) > fitting(100) > 1
    monkeypatch.setattr(chunks, "CPU_BYTES", 1)
    assert fitting(9) == 1


def test_nothing_is_measured_where_all_victims_take_little_by_the_estimate(
    make_observation: Make, make_parts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "measured", lambda problem: pytest.fail("measured"))
    assert victims_in_memory(problem_of(make_observation, make_parts), 1) == 300


@pytest.mark.usefixtures("measures")
def test_a_search_that_cannot_be_measured_is_estimated(
    make_observation: Make,
    make_parts: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where a tensor of the problem's is left on the CPU, say."""
    problem = problem_of(make_observation, make_parts)
    left = torch.ones(problem.shape)
    inputs = GradientMatching.network_inputs
    monkeypatch.setattr(
        GradientMatching, "network_inputs", lambda self, points: inputs(self, points) * left
    )
    monkeypatch.setattr(chunks, "CPU_BYTES", 10 * chunks.rough_bytes(problem, 1))
    with caplog.at_level(logging.DEBUG):
        assert victims_in_memory(problem, 1) == 10
    assert "is estimated, as measuring it failed: aten.mul.Tensor is given" in caplog.text


class Keeping(torch.nn.Module):
    """Layer that keeps what it computed first."""

    ones: torch.Tensor | None = None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.ones is None:
            self.ones = torch.ones_like(inputs)
        return inputs * self.ones


def test_measuring_leaves_no_trace(make_observation: Make, make_parts: Make) -> None:
    """In the network, whose layers may keep what they computed, nor in the random state."""
    observation, _, _ = make_observation()
    problem = GradientMatching.of(observation, make_parts())
    observation.model.append(layer := Keeping())
    looped = LoopedGradients(ClientTraining.of(observation, "one_step"))
    before, problem = torch.get_rng_state(), replace(problem, gradients=looped)
    with measured(problem) as needed:
        assert needed(2) > needed(1) > 0
    assert torch.equal(torch.get_rng_state(), before)
    assert layer.ones is None
    assert problem.evaluate(torch.rand(3, problem.unknowns)).gradient.isfinite().all()


@pytest.mark.usefixtures("measures")
def test_a_gpu_too_small_for_a_victim_is_told_before_the_search(
    make_observation: Make, make_parts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the parts of its batch have been tried, which take less."""
    observation, _, _ = make_observation(samples=8)
    problem, parts = GradientMatching.of(observation, make_parts()), make_parts(iterations=3)
    whole, divided = (_alone(one) for one in (problem, problem.in_microbatches(8)))
    searched: list[int] = []
    solve_chunk = engine._solve_chunk
    monkeypatch.setattr(
        engine,
        "_solve_chunk",
        lambda some, *rest: searched.append(some.gradients.count) or solve_chunk(some, *rest),
    )
    monkeypatch.setattr(chunks, "free_memory", lambda device: (whole + divided) // 2)
    match(observation, parts)
    assert searched[0] > 1
    searched.clear()
    monkeypatch.setattr(chunks, "free_memory", lambda device: 1000)
    with pytest.raises(GleakError, match=r"its search takes .* GB, and 1e-06 GB are free; use a"):
        match(observation, parts)
    assert not searched


def _alone(problem: GradientMatching | None) -> int:
    """Measure the search for one victim."""
    assert problem is not None
    with measured(problem) as needed:
        return needed(1)
