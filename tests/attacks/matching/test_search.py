"""Stops, restarts and records of single victims, on problems whose answer is known."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.attacks.matching import search as module
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.line_search import LineSearchLBFGS
from gleak.attacks.matching.optimizers import SGD, Adagrad, Adam, OptimizerSpec
from gleak.attacks.matching.priors import TotalVariation
from gleak.attacks.matching.quasi_newton import LBFGS
from gleak.attacks.matching.search import (
    NEAR,
    RECORDS,
    SHOWN_VICTIMS,
    SNAPSHOT_BYTES,
    Records,
    Search,
    SearchState,
    kept_snapshots,
    snapshot_iterations,
)
from gleak.runtime.checkpointing import Journal
from gleak.runtime.gpu_loop import GPU_EVALUATIONS, WARM_UP, on_host
from gleak.runtime.progress import Progress
from gleak.runtime.virtual_gpu import DEVICE, VirtualGPU
from tests.runtime.recorded_graph import RecordedGraphs

Make = Callable[..., Any]

TARGETS = [[0.1, 0.0], [2.0, 0.0], [5.0, 5.0], [0.0, -3.0]]


class Draws:
    """First points at the origin by default; records the arguments."""

    def __init__(self, places: dict[tuple[int, int], list[float]] | None = None) -> None:
        self.places, self.asked = places or {}, []

    def __call__(self, row: int, attempt: int) -> Tensor:
        self.asked.append((row, attempt))
        return torch.tensor(self.places.get((row, attempt), [0.0, 0.0]))


def run(bowl: Any, draw: Draws | None = None) -> tuple[SearchState, Records, Search]:
    victims = len(bowl.observed["target"])
    records = Records((victims, *bowl.shape), bowl.parts.iterations)
    search = Search(bowl, draw or Draws(), records)
    with Progress(bowl.parts.iterations, "test") as progress:
        return search.run(progress, Journal().part()), records, search


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Look every 20 evaluations and replay graphs; returns a list of "capture" and "replay"."""
    graphs = RecordedGraphs()
    monkeypatch.setattr(module, "graphs_on", lambda device: graphs)
    monkeypatch.setattr(module, "evaluations_between_reads", lambda device: GPU_EVALUATIONS)
    return graphs.events


def test_the_books_hold_the_best_point_found(make_bowl: Make):
    """Adam with a constant rate swings past its target and back."""
    bowl = make_bowl(TARGETS)
    search_state, records, _ = run(bowl)
    found = bowl.evaluate(search_state.points)
    assert torch.equal(found.distance, search_state.distance)
    assert torch.equal(found.objective, search_state.objective)
    assert (search_state.distance <= torch.tensor(np.min(records.objective, axis=0))).all()
    assert search_state.evaluations.tolist() == [61] * 4
    assert search_state.converged.all()


def test_every_victim_stops_at_its_own_threshold(make_bowl: Make):
    search_state, _, search = run(make_bowl(TARGETS, threshold=1e-2))
    assert search_state.converged.tolist() == [True, True, False, True]
    spent = search_state.evaluations
    assert spent[0] < spent[1] < spent[3] < 61
    assert search_state.evaluations[2] == 61
    assert (search_state.distance <= 1e-2).tolist() == search_state.converged.tolist()
    assert len(search.points) == 1, "finished victims are taken out of the batch"


@pytest.mark.parametrize("rows", [[0], [1], [0, 3], [2, 1]])
@pytest.mark.parametrize(
    "optimizer", [Adam(lr=0.1), LBFGS(inner=2, lr=0.3), LineSearchLBFGS()], ids=str
)
def test_a_victims_result_does_not_depend_on_the_others(
    make_bowl: Make, rows: list[int], optimizer: OptimizerSpec
):
    """Nor does a finished one change, which stays in a batch that is large enough for a while."""
    parts = {"optimizer": optimizer, "threshold": 1e-2}
    together, books, _ = run(make_bowl([*TARGETS, *[[9.0, 9.0]] * 8], **parts))
    some, own, _ = run(make_bowl([TARGETS[row] for row in rows], **parts))
    for name in ("points", "objective", "distance", "evaluations", "converged"):
        torch.testing.assert_close(getattr(some, name), getattr(together, name)[rows])
    for one, other in zip(own.objective, books.objective, strict=True):
        assert one == pytest.approx(other[rows])


def test_a_search_that_leaves_the_finite_begins_afresh(make_bowl: Make):
    draw = Draws({(1, 0): [99.0, 0.0]})
    search_state, _, _ = run(make_bowl(TARGETS, restarts=3, threshold=1e-2), draw)
    assert search_state.restarts.tolist() == [0, 1, 0, 0]
    assert draw.asked == [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1)]
    assert search_state.converged[1]
    undisturbed, _, _ = run(make_bowl(TARGETS, threshold=1e-2))
    assert search_state.evaluations[1] == undisturbed.evaluations[1] + 1
    torch.testing.assert_close(search_state.points[1], undisturbed.points[1])


def test_a_search_that_blows_up_begins_afresh(make_bowl: Make):
    """A step a thousand times too long lands a million times as far off as the start was."""
    bowl = make_bowl([[0.01, 0.0]], restarts=2, optimizer=LBFGS(lr=1e3, inner=1), iterations=4)
    search_state, _, search = run(bowl)
    assert search_state.restarts.item() == 2
    assert search_state.distance.item() == pytest.approx(1e-4)
    assert not search.running.any()


def test_a_search_that_stalls_begins_afresh(make_bowl: Make):
    """With such a rate nothing is gained: an attempt ends with its fourth evaluation."""
    draw = Draws()
    bowl = make_bowl([[2.0, 0.0]], restarts=2, patience=3, optimizer=Adam(lr=1e-9))
    search_state, _, _ = run(bowl, draw)
    assert draw.asked == [(0, 0), (0, 1), (0, 2)]
    assert search_state.evaluations.item() == 3 * 4


def test_a_search_lost_close_to_its_end_goes_on_from_its_best_point(make_bowl: Make):
    """Only what the optimiser has learnt is forgotten, which is no restart."""
    near = Draws({(0, 0): [NEAR**0.5 / 2, 0.0]})
    bowl = make_bowl([[0.0, 0.0]], restarts=2, patience=3, optimizer=Adam(lr=1e-9))
    search_state, _, _ = run(bowl, near)
    assert near.asked == [(0, 0)]
    assert search_state.restarts.item() == 0
    assert search_state.evaluations.item() == bowl.parts.iterations + 1
    assert search_state.distance.item() <= NEAR / 4


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_search_out_of_restarts_stops_unconverged(make_bowl: Make, restarts: int):
    lost = Draws({(0, attempt): [99.0, 0.0] for attempt in range(9)})
    search_state, _, _ = run(make_bowl(TARGETS[:2], restarts=restarts, threshold=1e-2), lost)
    assert search_state.restarts.tolist() == [restarts, 0]
    assert search_state.evaluations[0] == restarts + 1
    assert search_state.converged.tolist() == [False, True]
    assert search_state.objective[0].isinf()


def test_the_budget_is_counted_in_iterations_of_the_optimiser(make_bowl: Make):
    search_state, _, _ = run(make_bowl(TARGETS, optimizer=LBFGS(inner=5, lr=1e-3), iterations=4))
    assert search_state.evaluations.tolist() == [4 * 5 + 1] * 4


def test_points_stay_in_the_box(make_bowl: Make):
    search_state, _, _ = run(make_bowl(TARGETS, box=True))
    expected = torch.tensor(TARGETS).clamp(0, 1)
    torch.testing.assert_close(search_state.points, expected, atol=0.06, rtol=0)
    assert 0 <= search_state.points.min() <= search_state.points.max() <= 1


def test_records_follow_the_search_and_then_hold_the_result(make_bowl: Make):
    search_state, records, _ = run(make_bowl(TARGETS, threshold=1e-2))
    first = torch.tensor(TARGETS).square().sum(1)
    torch.testing.assert_close(torch.tensor(records.objective[0]).float(), first)
    stopped = int(search_state.evaluations[0])
    for moment, values in zip(records.iterations, records.objective, strict=True):
        if moment >= stopped:
            assert values[0] == search_state.objective[0].item()
    shown = torch.tensor(records.pictures[-1])[0].flatten()
    torch.testing.assert_close(shown, search_state.points[0].clamp(0, 1))


@given(st.integers(1, 900), st.integers(0, 400))
def test_what_is_missing_at_the_end_is_filled_with_what_was_seen_last(iterations: int, last: int):
    records = Records((3, 1, 2), iterations)
    assert min(iterations, RECORDS) / 2 <= len(records.iterations) <= RECORDS + 1
    for iteration in range(min(last, iterations) + 1):
        if records.due(iteration):
            values = torch.full((3,), float(iteration))
            records.see(torch.arange(3), values, values[:, None, None].expand(3, 1, 2) / 1e3)
            records.record(iteration)
    records.record(iterations)
    seen = [moment for moment in sorted({*records.iterations, *records.moments}) if moment <= last]
    expected = [min(moment, seen[-1]) for moment in records.iterations]
    assert [float(values[1]) for values in records.objective] == expected
    shown = [min(moment, seen[-1]) / 1e3 for moment in records.moments]
    assert [float(picture[1, 0, 0]) for picture in records.pictures] == pytest.approx(shown)


def test_only_the_first_victims_are_shown_and_each_keeps_its_place():
    records = Records((9, 1, 1), 10)
    records.see(torch.tensor([2, 8]), torch.tensor([5.0, 7.0]), torch.tensor([[[0.5]], [[7.0]]]))
    records.see(torch.tensor([3]), torch.tensor([1.0]), torch.tensor([[[9.0]]]))
    records.record(0)
    assert records.pictures[0].shape == (SHOWN_VICTIMS, 1, 1)
    assert records.pictures[0].ravel().tolist() == [0, 0, 0.5, 1] + [0] * (SHOWN_VICTIMS - 4)
    assert records.objective[0][[2, 8]].tolist() == [5, 7]


def test_values_that_are_not_finite_leave_the_ones_before():
    records = Records((2, 1, 1), 10)
    points = torch.tensor([[[0.5]], [[0.25]]])
    records.see(torch.arange(2), torch.tensor([3.0, torch.nan]), points)
    records.see(torch.arange(2), torch.tensor([torch.inf, torch.nan]), points * torch.nan)
    records.record(0)
    assert records.objective[0][0] == 3
    assert records.objective[0][1] == np.finfo(np.float64).max, "no search begins at zero"
    assert np.isfinite(records.pictures[0]).all()


def test_snapshots_follow_a_series_and_large_samples_have_fewer():
    assert snapshot_iterations(1) == [0, 1]
    assert snapshot_iterations(60) == [0, 1, 2, 5, 10, 20, 50]
    few, moments = kept_snapshots((256, 3, 224, 224), 1000)
    assert (few, moments) == (1, [0, 1000])
    assert kept_snapshots((16, 3, 128, 128), 1000) == (SHOWN_VICTIMS, snapshot_iterations(1000))
    some, moments = kept_snapshots((32, 3, 224, 224), 1000)
    assert (some, moments[0], moments[-1]) == (1, 0, 1000)
    assert len(moments) * 32 * 3 * 224 * 224 * 4 <= SNAPSHOT_BYTES


def test_without_shown_victims_no_images_are_kept():
    records = Records((2, 1, 2), 10, most_shown=0)
    records.see(torch.arange(2), torch.ones(2), torch.ones(2, 1, 2))
    records.record(10)
    assert records.state()["pictures"].size == 0
    assert records.state()["objective"].min() == 1


OPTIMIZERS = [
    Adam(lr=0.1, signed=True, schedule="steps"),
    Adam(lr=0.1, schedule="cosine"),
    SGD(lr=0.1),
    Adagrad(lr=0.5),
    LBFGS(inner=2, lr=0.3),
    LBFGS(inner=3, lr=0.3, history=3),
    LineSearchLBFGS(),
]
SETTINGS: dict[str, dict[str, Any]] = {
    "to the end": {},
    "threshold": {"threshold": 1e-2},
    "restarts": {"threshold": 1e-2, "restarts": 3, "patience": 25},
    "box": {"threshold": 1e-2, "restarts": 1, "box": True},
}


def assert_same(one: tuple[SearchState, Records, Search], other: Any) -> None:
    for name, value in vars(one[0]).items():
        assert torch.equal(value, getattr(other[0], name)), name
    assert np.array_equal(one[1].objective, other[1].objective)
    assert np.array_equal(one[1].pictures, other[1].pictures)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_gpu_that_is_not_waited_for_gives_the_same_result(
    make_bowl: Make,
    request: pytest.FixtureRequest,
    setting: str,
    optimizer: OptimizerSpec,
):
    """Also where a victim restarts far off, and where finished ones are taken out."""
    parts = {"optimizer": optimizer, "iterations": 80, **SETTINGS[setting]}
    targets, lost = [*TARGETS, [0.3, 0.4], [0.0, 0.0]], {(1, 0): [99.0, 0.0]}
    expected = run(make_bowl(targets, **parts), Draws(lost))
    events = request.getfixturevalue("as_on_a_gpu")
    assert_same(run(make_bowl(targets, **parts), Draws(lost)), expected)
    if setting == "to the end" and not optimizer.steps_back:
        captures, moves = events.count("capture"), 80 * optimizer.evaluations_per_iteration
        assert captures == (5 if optimizer == OPTIMIZERS[4] else 1), "histories are doubled"
        assert events.count("replay") == moves - captures * WARM_UP


def test_real_gradients_are_matched_by_graphs_with_the_same_result(
    make_observation: Make, make_parts: Make, request: pytest.FixtureRequest
):
    observation, _, _ = make_observation()
    parts = make_parts(
        labels="joint", optimizer=LBFGS(inner=4), iterations=6, priors=(TotalVariation(0.1),)
    )
    problem = GradientMatching.of(observation, parts)

    def search() -> tuple[SearchState, Records, Search]:
        draws = torch.rand(3, problem.unknowns, generator=torch.Generator().manual_seed(0))
        records = Records((3, *problem.shape), parts.iterations)
        found = Search(problem, lambda row, attempt: draws[row].clone(), records)
        with Progress(parts.iterations, "test") as progress:
            return found.run(progress, Journal().part()), records, found

    expected = search()
    assert (expected[0].objective < 0.9).all()
    events = request.getfixturevalue("as_on_a_gpu")
    assert_same(search(), expected)
    assert "replay" in events


def test_a_search_lost_twice_between_looks_waits_for_the_next(
    make_bowl: Make, as_on_a_gpu: list[str]
):
    draw = Draws({(0, 0): [99.0, 0.0], (0, 1): [99.0, 0.0]})
    search_state, _, _ = run(make_bowl(TARGETS[:2], restarts=3, threshold=1e-2), draw)
    assert search_state.restarts.tolist() == [2, 0]
    assert search_state.converged.all()
    alone, _, _ = run(make_bowl(TARGETS[:1], threshold=1e-2))
    waited = search_state.evaluations[0] - alone.evaluations[0]
    assert 2 < waited <= GPU_EVALUATIONS + 1
    assert draw.asked == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_a_gpu_is_waited_for_once_in_twenty_evaluations(
    make_bowl: Make, monkeypatch: pytest.MonkeyPatch, optimizer: OptimizerSpec
):
    def running(*tensors: Tensor) -> list[np.ndarray]:
        copies = on_host(*tensors)
        for known in (copies[0], copies[2]):  # all run, and have a point to restart from
            known[:] = True
        return copies

    monkeypatch.setattr(module, "evaluations_between_reads", lambda device: GPU_EVALUATIONS)
    monkeypatch.setattr(module, "on_host", running)
    parts = {"optimizer": optimizer, "restarts": 3, "threshold": 1e-2, "patience": 9, "box": True}
    bowl = make_bowl(TARGETS, **parts)
    with VirtualGPU(10**8) as gpu, Progress(60, "test") as progress:
        bowl.observed = {name: value.to(DEVICE) for name, value in bowl.observed.items()}
        search = Search(
            bowl, lambda row, attempt: torch.zeros(2).to(DEVICE), Records((4, 1, 2), 60)
        )
        search._evaluate()
        search._count()
        before = gpu.synchronisations
        search._advance()
        assert search.number == 1 + GPU_EVALUATIONS
        assert gpu.synchronisations == before
        assert search.records.noted, "what is recorded waits for the next look"
        search._look(progress)
        assert gpu.synchronisations == before + 1
        assert search.left


def test_a_search_is_freed_at_its_end_without_the_garbage_collector(
    make_bowl: Make, as_on_a_gpu: list[str]
):
    gc.disable()
    try:
        _, _, search = run(make_bowl(TARGETS))
        freed = weakref.ref(search)
        del search
        assert freed() is None
    finally:
        gc.enable()
    assert "replay" in as_on_a_gpu
