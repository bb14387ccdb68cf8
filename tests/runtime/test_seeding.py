from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.runtime.seeding import drawing_from, stream, torch_stream

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
