"""Micro-batches give the objective and the gradient of whole batches, and the engine's fallback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gleak.attacks.matching import engine
from gleak.attacks.matching.distances import L2, Cosine, DistanceSpec
from gleak.attacks.matching.engine import match
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.parts import Parts
from gleak.attacks.matching.priors import TotalVariation

MakeParts = Callable[..., Parts]
MakeObservation = Callable[..., Any]


@pytest.mark.parametrize("distance", [L2(), Cosine()], ids=str)
@pytest.mark.parametrize("labels", ["known", "joint"])
@pytest.mark.parametrize("count", [2, 3])
def test_an_evaluation_is_that_of_whole_batches(
    make_observation: MakeObservation,
    make_parts: MakeParts,
    distance: DistanceSpec,
    labels: str,
    count: int,
) -> None:
    observation, _, _ = make_observation(samples=5)
    whole = GradientMatching.of(
        observation, make_parts(distance=distance, labels=labels, priors=[TotalVariation(0.1)])
    )
    divided = whole.in_microbatches(count)
    assert divided is not None
    points = torch.rand(observation.victims, whole.unknowns)
    expected, found = whole.evaluate(points), divided.evaluate(points)
    for name in ("objective", "distance", "gradient"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))


def test_a_batch_has_no_more_microbatches_than_samples(
    make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    problem = GradientMatching.of(make_observation(samples=3)[0], make_parts())
    assert problem.in_microbatches(3) is not None
    assert problem.in_microbatches(4) is None


def test_a_victim_that_does_not_fit_is_searched_in_microbatches(
    make_observation: MakeObservation, make_parts: MakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
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
