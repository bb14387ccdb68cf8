from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gleak.models.examination import check_trainable
from gleak.models.stochastic import sampling_layers
from gleak.runtime.seeding import drawing_from, own_draws, stream, torch_stream

Draws = Callable[..., list[int]]
SEEDS = st.integers(0, 2**32)


def numpy_draws(seed: int, purpose: str, *indices: int) -> list[int]:
    return stream(seed, purpose, *indices).integers(0, 2**62, 4).tolist()


def torch_draws(seed: int, purpose: str, *indices: int) -> list[int]:
    generator = torch_stream(seed, purpose, *indices)
    return torch.randint(0, 2**62, (4,), generator=generator).tolist()


@pytest.mark.parametrize("draws", [numpy_draws, torch_draws])
def test_seed_purpose_and_indices_each_name_another_stream(draws: Draws) -> None:
    names = [
        (seed, purpose, *rest)
        for seed in (0, 1)
        for purpose in ("a", "b")
        for rest in [(), (0,), (1,), (0, 0), (0, 1), (1, 0)]
    ]
    assert len({tuple(draws(*name)) for name in names}) == len(names)


def test_streams_are_uncorrelated() -> None:
    draws = np.array([stream(0, "noise", victim).normal(size=4000) for victim in range(20)])
    correlation = np.corrcoef(draws) - np.eye(20)
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)


def test_streams_stay_the_same_between_releases() -> None:
    assert stream(1, "batches", 3).integers(0, 1000, 3).tolist() == [66, 535, 243]


def test_torch_streams_live_on_the_cpu_and_leave_the_global_one_alone() -> None:
    before = torch.get_rng_state()
    generator = torch_stream(0, "start", 5)
    torch.rand(3, generator=generator)
    assert generator.device == torch.device("cpu")
    assert torch.equal(torch.get_rng_state(), before)


@given(seed=SEEDS)
def test_torchs_own_numbers_are_those_of_the_stream_within_the_block(seed: int) -> None:
    before = torch.get_rng_state()
    with drawing_from(torch_stream(seed, "client", 0)):
        drawn = torch.rand(4)
    assert torch.equal(drawn, torch.rand(4, generator=torch_stream(seed, "client", 0)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fail if CUDA is started; gives the seeds that GPUs would get, if they were started."""
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: pytest.fail("CUDA was started"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    return seeds


def test_draws_of_a_job_on_the_cpu_start_no_gpu(no_cuda: list[int]) -> None:
    """A seed set in the block is not that of GPUs which the process starts later."""
    torch.manual_seed(11)
    with drawing_from(torch_stream(0, "client", 0)):
        drawn = torch.rand(4)
    assert torch.equal(drawn, torch.rand(4, generator=torch_stream(0, "client", 0)))
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Dropout())
    assert sampling_layers(network.train(), torch.rand(2, 3, 2, 2)) == ("2",)
    check_trainable(network.eval(), (3, 2, 2), 3)
    assert no_cuda[-1] == 11


def test_gpus_that_are_started_draw_the_stream_and_then_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Generators of the CPU stand in for those of two GPUs."""
    gpus = [torch.Generator().manual_seed(seed) for seed in (3, 4)]
    before = [gpu.get_state() for gpu in gpus]
    answers = {
        "is_initialized": lambda: True,
        "device_count": lambda: len(gpus),
        "get_rng_state": lambda number: gpus[number].get_state(),
        "set_rng_state": lambda state, number: gpus[number].set_state(state),
        "manual_seed_all": lambda seed: [gpu.manual_seed(seed) for gpu in gpus],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    with drawing_from(torch_stream(0, "client", 0)):
        drawn = [torch.rand(2, generator=gpu) for gpu in gpus]
    assert all(torch.equal(one, torch_draw(2)) for one in drawn)
    assert all(map(torch.equal, before, [gpu.get_state() for gpu in gpus]))
    with own_draws():
        torch.rand(1, generator=gpus[1])
    assert all(map(torch.equal, before, [gpu.get_state() for gpu in gpus]))


def torch_draw(count: int) -> torch.Tensor:
    return torch.rand(count, generator=torch_stream(0, "client", 0))
