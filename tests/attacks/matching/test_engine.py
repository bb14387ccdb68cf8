"""Memory, chunks, random streams and the final step of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching import engine
from gleak.attacks.matching.distances import L2, Cosine, DistanceSpec
from gleak.attacks.matching.engine import (
    equalized,
    finished,
    joined_searches,
    match,
    stretched,
)
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.priors import TotalVariation
from gleak.attacks.matching.quasi_newton import LBFGS
from gleak.attacks.matching.search import SHOWN_VICTIMS
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse

Make = Callable[..., Any]


def test_chunks_give_what_all_victims_give_together(
    make_observation: Make, make_parts: Make, monkeypatch: pytest.MonkeyPatch
):
    observation, _, _ = make_observation(victims=6)
    parts = make_parts(iterations=5)
    whole = match(observation, parts)
    monkeypatch.setattr(engine, "victims_in_memory", lambda problem, steps: 2)
    chunks = match(observation, parts)
    assert chunks.snapshots.shape[0] == whole.snapshots.shape[0] == SHOWN_VICTIMS
    for name in ("inputs", "objective", "trace_objective", "snapshots"):
        values = (getattr(chunks, name), getattr(whole, name))
        np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-4)
    for name in ("labels", "evaluations", "iterations", "restarts", "converged"):
        assert np.array_equal(getattr(chunks, name), getattr(whole, name))


def test_victims_start_from_streams_of_their_own(make_observation: Make, make_parts: Make):
    """Named by the victim's number, not by its position."""
    parts = make_parts(iterations=1, optimizer=LBFGS(lr=1e-6, inner=1))
    every = match(make_observation()[0], parts).snapshots[:, 0]
    moved, _, _ = make_observation(victim_ids=np.array([2, 7, 0]))
    starts = match(moved, parts).snapshots[:, 0]
    assert np.array_equal(starts[[0, 2]], every[[2, 0]])
    assert len({start.tobytes() for start in [*every, starts[1]]}) == 4


def test_a_dense_network_is_inverted(make_observation: Make, make_parts: Make):
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
    make_observation: Make, make_parts: Make
):
    observation, _, _ = make_observation()
    observation.update["0.weight"][1] = torch.inf
    found = match(observation, make_parts(iterations=3, threshold=1e-9))
    found.validate()
    assert not found.converged.any()
    alone = match(make_observation()[0], make_parts(iterations=3, threshold=1e-9))
    np.testing.assert_allclose(found.inputs[[0, 2]], alone.inputs[[0, 2]], atol=1e-4)


def test_samples_are_cut_or_stretched_each_by_its_own_largest_magnitude():
    samples = torch.tensor([[[[-1.0, 0.5, 2.0, 4.0]]], [[[0.1, 0.2, 0.3, torch.nan]]]])
    expected = {
        "cut": ([0, 0.5, 1, 1], [0.1, 0.2, 0.3, 0]),
        "stretched": ([0, 0.125, 0.5, 1], [1 / 3, 2 / 3, 1, 0]),
    }
    for finish, values in expected.items():
        np.testing.assert_allclose(finished(samples, finish)[:, 0, 0], values, rtol=1e-6)
    np.testing.assert_array_equal(stretched(np.zeros((1, 2, 2))), 0)


def test_equalised_values_keep_their_order_and_fill_the_range():
    sample = np.random.default_rng(0).random((3, 16, 16)) ** 4
    equal = equalized(sample)
    order = np.argsort(sample, axis=None)
    assert (np.diff(equal.flatten()[order]) >= 0).all()
    shares, _ = np.histogram(equal, bins=4, range=(0, 1))
    np.testing.assert_allclose(shares / sample.size, 0.25, atol=0.05)


OTHERS = (parse("dataset", "digits"), parse("model", "lenet"), parse("client", "fedsgd"))


def search_of(inputs: list[Any], labels: list[Any], objective: list[float]) -> Reconstruction:
    """Return a search of V victims after five iterations."""
    values = np.array(inputs, np.float32)[..., None]
    ones = np.ones(len(values), int)
    return Reconstruction(
        inputs=values,
        labels=np.array(labels),
        converged=np.array(objective) < 0.5,
        iterations=5 * ones,
        evaluations=6 * ones,
        restarts=0 * ones,
        objective=np.array(objective),
        trace_iteration=np.array([0, 5]),
        trace_objective=np.stack([np.array(objective) + 1, np.array(objective)], 1),
        snapshot_iteration=np.array([0]),
        snapshots=values[:1, None],
    )


FIRST = search_of([[0.0, 0.5], [0.25, 1.0]], [[3, 3], [1, 2]], [0.75, 0.25])
SECOND = search_of([[0.75, 0.25], [0.5, 0.5]], [[3, 3], [1, 2]], [0.125, 1.0])


def test_the_lowest_objective_decides_for_each_victim():
    found = joined_searches([FIRST, SECOND], "lowest")
    assert found.inputs[..., 0].tolist() == [[0.25, 0.75], [0.25, 1.0]]
    assert found.objective.tolist() == [0.125, 0.25]
    assert found.trace_objective[:, 1].tolist() == [0.125, 0.25]
    assert found.converged.tolist() == [True, True]
    assert found.iterations.tolist() == [10, 10], "all searches are paid for"
    assert found.evaluations.tolist() == [12, 12]


def test_the_mean_is_of_samples_that_belong_together():
    """Those of equal labels may be in another order; those of other labels are never mixed."""
    found = joined_searches([FIRST, SECOND], "mean")
    assert found.inputs[..., 0].tolist() == [[0.125, 0.625], [0.375, 0.75]]
    assert found.snapshots[0, 0, :, 0].tolist() == [0.125, 0.625]
    assert np.array_equal(found.labels, FIRST.labels)


def test_labels_come_with_the_samples_of_their_search():
    other = search_of([[0.5, 0.0], [0.0, 0.0]], [[4, 3], [1, 2]], [0.0, 1.0])
    found = joined_searches([FIRST, other], "lowest")
    assert dict(zip(found.labels[0], found.inputs[0, :, 0], strict=True)) == {4: 0.5, 3: 0.0}


def test_an_attack_searches_from_several_starts(make_observation: Make):
    observation, _, _ = make_observation(samples=1)
    attack = parse("attack", "invertgrad+iterations=3+seeds=3")
    alone, found = match(observation, attack.parts()), attack.reconstruct(observation)
    assert attack.cost().evaluations == 9
    assert (found.objective <= alone.objective).all()
    assert (found.objective < alone.objective).any()
    assert found.iterations.tolist() == [9, 9, 9]


@pytest.mark.parametrize(
    ("attack", "fault"),
    [
        ("invertgrad+result=mean", "has one search and no mean; add seeds=4"),
        ("dlg+seeds=2+result=mean", "may order samples differently"),
    ],
)
def test_what_has_no_mean_is_refused(attack: str, fault: str):
    with pytest.raises(IncompatibleError, match=fault):
        parse("attack", attack).check(*OTHERS)


@pytest.mark.parametrize("distance", [L2(), Cosine()], ids=str)
@pytest.mark.parametrize("labels", ["known", "joint"])
@pytest.mark.parametrize("count", [2, 3])
def test_an_evaluation_is_that_of_whole_batches(
    make_observation: Make, make_parts: Make, distance: DistanceSpec, labels: str, count: int
):
    observation, _, _ = make_observation(samples=5)
    whole = GradientMatching.of(
        observation, make_parts(distance=distance, labels=labels, priors=[TotalVariation(0.1)])
    )
    divided = whole.in_microbatches(count)
    assert divided is not None
    assert whole.in_microbatches(6) is None, "no more than samples"
    points = torch.rand(observation.victims, whole.unknowns)
    expected, found = whole.evaluate(points), divided.evaluate(points)
    for name in ("objective", "distance", "gradient"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))


def test_a_victim_that_does_not_fit_is_searched_in_microbatches(
    make_observation: Make, make_parts: Make, monkeypatch: pytest.MonkeyPatch
):
    observation, _, _ = make_observation(samples=4)
    parts = make_parts(iterations=3)
    expected = match(observation, parts)
    solve_chunk, tried = engine._solve_chunk, []

    def limited(problem: Any, seen: Any, rows: slice, part: Any) -> Any:
        tried.append((rows.stop - rows.start, getattr(problem.gradients, "count", 1)))
        if tried[-1] != (1, 4):
            raise torch.OutOfMemoryError
        return solve_chunk(problem, seen, rows, part)

    monkeypatch.setattr(engine, "_solve_chunk", limited)
    found = match(observation, parts)
    assert tried == [(3, 1), (1, 1), (1, 2), (1, 4), (1, 4), (1, 4)]
    np.testing.assert_allclose(found.inputs, expected.inputs, atol=1e-4)
