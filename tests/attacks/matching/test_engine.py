"""Memory, chunks, random streams and the final step of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gleak.attacks.matching import engine
from gleak.attacks.matching.engine import (
    equalized,
    finished,
    in_chunks,
    match,
    stretched,
    victims_in_memory,
)
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.parts import Parts
from gleak.attacks.matching.quasi_newton import LBFGS
from gleak.attacks.matching.search import SHOWN_VICTIMS
from gleak.core.errors import GleakError
from gleak.runtime.checkpointing import Journal

MakeParts = Callable[..., Parts]
MakeObservation = Callable[..., Any]


class Memory:
    """Work that fails on more victims than fit into memory."""

    def __init__(self, fits: int, error: BaseException) -> None:
        self.fits, self.error, self.tried = fits, error, []

    def __call__(self, some: slice) -> slice:
        self.tried.append(some.stop - some.start)
        if self.tried[-1] > self.fits:
            raise self.error
        return some


SHORTAGES = [
    torch.OutOfMemoryError("CUDA out of memory"),
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
]


@pytest.mark.parametrize("error", SHORTAGES, ids=lambda error: type(error).__name__)
def test_ranges_are_halved_until_they_fit(error: BaseException) -> None:
    memory = Memory(3, error)
    done = in_chunks(11, 100, memory, Journal().part())
    assert memory.tried == [11, 5, 2, 2, 2, 2, 2, 1]
    assert [row for some in done for row in range(some.start, some.stop)] == list(range(11))


@pytest.mark.parametrize("error", SHORTAGES, ids=lambda error: type(error).__name__)
def test_a_victim_that_does_not_fit_alone_ends_it(error: BaseException) -> None:
    memory = Memory(0, error)
    with pytest.raises(GleakError, match="not even one victim fits into memory"):
        in_chunks(4, 4, memory, Journal().part())
    assert memory.tried == [4, 2, 1]


def test_other_errors_are_passed_on() -> None:
    memory = Memory(0, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        in_chunks(4, 4, memory, Journal().part())
    assert memory.tried == [4]


def test_fewer_victims_fit_where_histories_are_long_or_steps_are_many(
    make_observation: MakeObservation, make_parts: MakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation, _, _ = make_observation()

    def fitting(history: int, steps: int = 1) -> int:
        parts = make_parts(optimizer=LBFGS(history=history))
        return victims_in_memory(GradientMatching.of(observation, parts), steps)

    assert fitting(1) > fitting(100) > 1
    assert fitting(1) > fitting(1, steps=10) > 1
    monkeypatch.setattr(engine, "CPU_BYTES", 1)
    assert fitting(1) == 1


def test_chunks_give_what_all_victims_give_together(
    make_observation: MakeObservation, make_parts: MakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation, _, _ = make_observation(victims=6)
    parts = make_parts(iterations=5)
    whole = match(observation, parts)
    monkeypatch.setattr(engine, "victims_in_memory", lambda problem, steps: 2)
    chunks = match(observation, parts)
    assert chunks.snapshots.shape[0] == whole.snapshots.shape[0] == SHOWN_VICTIMS
    for name in ("inputs", "objective", "trace_objective", "snapshots"):
        np.testing.assert_allclose(
            getattr(chunks, name), getattr(whole, name), rtol=1e-3, atol=1e-4
        )
    for name in ("labels", "evaluations", "iterations", "restarts", "converged"):
        assert np.array_equal(getattr(chunks, name), getattr(whole, name))


def test_victims_start_from_streams_of_their_own(
    make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    """Named by the victim's number, not by its position."""
    parts = make_parts(iterations=1, optimizer=LBFGS(lr=1e-6, inner=1))
    every = match(make_observation()[0], parts).snapshots[:, 0]
    moved, _, _ = make_observation(victim_ids=np.array([2, 7, 0]))
    starts = match(moved, parts).snapshots[:, 0]
    assert np.array_equal(starts[[0, 2]], every[[2, 0]])
    assert len({start.tobytes() for start in [*every, starts[1]]}) == 4


def test_a_dense_network_is_inverted(
    make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    """One sample of a perceptron: its gradient determines it."""
    observation, inputs, labels = make_observation("mlp+hidden=20", samples=1, granted={})
    parts = make_parts(
        labels="argmin", optimizer=LBFGS(), iterations=20, threshold=1e-9, restarts=5, patience=100
    )
    found = match(observation, parts)
    assert found.converged.all()
    assert np.array_equal(found.labels, labels.numpy())
    np.testing.assert_allclose(found.inputs, inputs.numpy(), atol=1e-2)
    assert (found.iterations <= 20).all()
    assert (np.ceil((found.evaluations - 1) / 20) == found.iterations).all()


def test_a_victim_whose_update_says_nothing_finite_is_still_written_down(
    make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    observation, _, _ = make_observation()
    observation.update["0.weight"][1] = torch.inf
    found = match(observation, make_parts(iterations=3, threshold=1e-9))
    found.validate()
    assert not found.converged.any()
    alone = match(make_observation()[0], make_parts(iterations=3, threshold=1e-9))
    np.testing.assert_allclose(found.inputs[[0, 2]], alone.inputs[[0, 2]], atol=1e-4)


SAMPLES = torch.tensor([[[[-1.0, 0.5], [2.0, 4.0]]], [[[0.1, 0.2], [0.3, torch.nan]]]])[:, None]


def test_samples_are_cut_to_valid_intensities() -> None:
    found = finished(SAMPLES, "cut")
    np.testing.assert_allclose(found[0, 0, 0], [[0, 0.5], [1, 1]])
    np.testing.assert_allclose(found[1, 0, 0], [[0.1, 0.2], [0.3, 0]])


def test_each_sample_is_stretched_by_its_own_largest_magnitude() -> None:
    found = finished(SAMPLES, "stretched")
    np.testing.assert_allclose(found[0, 0, 0], [[0, 0.125], [0.5, 1]])
    np.testing.assert_allclose(found[1, 0, 0], [[1 / 3, 2 / 3], [1, 0]], rtol=1e-6)


def test_nothing_stays_nothing() -> None:
    np.testing.assert_array_equal(stretched(np.zeros((1, 2, 2))), 0)


def test_equalised_values_keep_their_order_and_fill_the_range() -> None:
    sample = np.random.default_rng(0).random((3, 16, 16)) ** 4
    equal = equalized(sample)
    order = np.argsort(sample, axis=None)
    assert (np.diff(equal.flatten()[order]) >= 0).all()
    shares, _ = np.histogram(equal, bins=4, range=(0, 1))
    np.testing.assert_allclose(shares / sample.size, 0.25, atol=0.05)
