"""Stops, restarts and books of single victims, on problems whose answer is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gleak.matching.optimizers.adam import Adam
from gleak.matching.optimizers.lbfgs import LBFGS
from gleak.matching.records import Records
from gleak.matching.search import BLOW_UP, NEAR, Search, SearchState
from gleak.runtime.journal import Journal
from gleak.runtime.progress import Progress

TARGETS = [[0.1, 0.0], [2.0, 0.0], [5.0, 5.0], [0.0, -3.0]]
MakeBowl = Callable[..., Any]


class Draws:
    """First points at the origin, unless told otherwise; remembers what was asked."""

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


def test_the_books_hold_the_best_point_found(make_bowl: MakeBowl) -> None:
    """Adam with a constant rate swings past its target and back."""
    bowl = make_bowl(TARGETS)
    ledger, records, _ = run(bowl)
    found = bowl.evaluate(ledger.points)
    assert torch.equal(found.distance, ledger.distance)
    assert torch.equal(found.objective, ledger.objective)
    assert (ledger.distance <= torch.tensor(np.min(records.objective, axis=0))).all()
    assert ledger.evaluations.tolist() == [61] * 4
    assert ledger.converged.all()


def test_every_victim_stops_at_its_own_threshold(make_bowl: MakeBowl) -> None:
    ledger, _, search = run(make_bowl(TARGETS, threshold=1e-2))
    assert ledger.converged.tolist() == [True, True, False, True]
    assert ledger.evaluations[0] < ledger.evaluations[1] < ledger.evaluations[3] < 61
    assert ledger.evaluations[2] == 61
    assert (ledger.distance <= 1e-2).tolist() == ledger.converged.tolist()
    assert len(search.points) == 1, "finished victims are taken out of the batch"


@pytest.mark.parametrize("rows", [[0], [1], [0, 3], [2, 1]])
@pytest.mark.parametrize("quasi_newton", [False, True])
def test_a_victims_result_does_not_depend_on_the_others(
    make_bowl: MakeBowl, rows: list[int], quasi_newton: bool
) -> None:
    """Nor does a finished one change, which stays in a batch that is large enough for a while."""
    parts = {"optimizer": LBFGS(inner=2, lr=0.3)} if quasi_newton else {}
    crowd = [*TARGETS, *[[9.0, 9.0]] * 8]
    together, books, _ = run(make_bowl(crowd, threshold=1e-2, **parts))
    some, own, _ = run(make_bowl([TARGETS[row] for row in rows], threshold=1e-2, **parts))
    for name in ("points", "objective", "distance", "evaluations", "converged"):
        torch.testing.assert_close(getattr(some, name), getattr(together, name)[rows])
    for one, other in zip(own.objective, books.objective, strict=True):
        assert one == pytest.approx(other[rows])


def test_a_search_that_leaves_the_finite_begins_afresh(make_bowl: MakeBowl) -> None:
    draw = Draws({(1, 0): [99.0, 0.0]})
    ledger, _, _ = run(make_bowl(TARGETS, restarts=3, threshold=1e-2), draw)
    assert ledger.restarts.tolist() == [0, 1, 0, 0]
    assert draw.asked == [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1)]
    assert ledger.converged[1]
    undisturbed, _, _ = run(make_bowl(TARGETS, threshold=1e-2))
    assert ledger.evaluations[1] == undisturbed.evaluations[1] + 1
    torch.testing.assert_close(ledger.points[1], undisturbed.points[1])


def test_a_search_that_blows_up_begins_afresh(make_bowl: MakeBowl) -> None:
    """A step a thousand times too long lands a million times as far off as the start was."""
    bowl = make_bowl([[0.01, 0.0]], restarts=2, optimizer=LBFGS(lr=1e3, inner=1), iterations=4)
    ledger, _, search = run(bowl)
    assert ledger.restarts.item() == 2
    assert ledger.distance.item() == pytest.approx(1e-4)
    assert not search.running.any()
    assert BLOW_UP == 1e3


def test_a_search_that_stalls_begins_afresh(make_bowl: MakeBowl) -> None:
    """With such a rate nothing is gained: an attempt ends with its fourth evaluation."""
    draw = Draws()
    bowl = make_bowl([[2.0, 0.0]], restarts=2, patience=3, optimizer=Adam(lr=1e-9))
    ledger, _, _ = run(bowl, draw)
    assert draw.asked == [(0, 0), (0, 1), (0, 2)]
    assert ledger.evaluations.item() == 3 * 4


def test_a_search_lost_close_to_its_end_goes_on_from_its_best_point(make_bowl: MakeBowl) -> None:
    """Only what the optimiser has learnt is forgotten, which is no restart."""
    near = Draws({(0, 0): [NEAR**0.5 / 2, 0.0]})
    bowl = make_bowl([[0.0, 0.0]], restarts=2, patience=3, optimizer=Adam(lr=1e-9))
    ledger, _, _ = run(bowl, near)
    assert near.asked == [(0, 0)]
    assert ledger.restarts.item() == 0
    assert ledger.evaluations.item() == bowl.parts.iterations + 1
    assert ledger.distance.item() <= NEAR / 4


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_search_out_of_restarts_stops_unconverged(make_bowl: MakeBowl, restarts: int) -> None:
    lost = Draws({(0, attempt): [99.0, 0.0] for attempt in range(9)})
    ledger, _, _ = run(make_bowl(TARGETS[:2], restarts=restarts, threshold=1e-2), lost)
    assert ledger.restarts.tolist() == [restarts, 0]
    assert ledger.evaluations[0] == restarts + 1
    assert ledger.converged.tolist() == [False, True]
    assert ledger.objective[0].isinf()


def test_the_budget_is_counted_in_iterations_of_the_optimiser(make_bowl: MakeBowl) -> None:
    ledger, _, _ = run(make_bowl(TARGETS, optimizer=LBFGS(inner=5, lr=1e-3), iterations=4))
    assert ledger.evaluations.tolist() == [4 * 5 + 1] * 4


def test_points_stay_in_the_box(make_bowl: MakeBowl) -> None:
    ledger, _, _ = run(make_bowl(TARGETS, box=True))
    expected = torch.tensor(TARGETS).clamp(0, 1)
    torch.testing.assert_close(ledger.points, expected, atol=0.06, rtol=0)
    assert ledger.points.min() >= 0
    assert ledger.points.max() <= 1


def test_records_follow_the_search_and_then_hold_the_result(make_bowl: MakeBowl) -> None:
    ledger, records, _ = run(make_bowl(TARGETS, threshold=1e-2))
    first = torch.tensor(TARGETS).square().sum(1)
    torch.testing.assert_close(torch.tensor(records.objective[0]).float(), first)
    stopped = int(ledger.evaluations[0])
    for moment, values in zip(records.iterations, records.objective, strict=True):
        if moment >= stopped:
            assert values[0] == ledger.objective[0].item()
    shown = torch.tensor(records.pictures[-1])[0].flatten()
    torch.testing.assert_close(shown, ledger.points[0].clamp(0, 1))
