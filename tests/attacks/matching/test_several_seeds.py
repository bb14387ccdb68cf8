"""Several searches of the same victims, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching.engine import match
from gleak.attacks.matching.several_seeds import joined
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse

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


def test_the_lowest_objective_decides_for_each_victim() -> None:
    found = joined([FIRST, SECOND], "lowest")
    assert found.inputs[..., 0].tolist() == [[0.25, 0.75], [0.25, 1.0]]
    assert found.objective.tolist() == [0.125, 0.25]
    assert found.trace_objective[:, 1].tolist() == [0.125, 0.25]
    assert found.converged.tolist() == [True, True]


def test_the_mean_is_of_samples_that_belong_together() -> None:
    """Those of equal labels may be in another order; those of other labels are never mixed."""
    found = joined([FIRST, SECOND], "mean")
    assert found.inputs[..., 0].tolist() == [[0.125, 0.625], [0.375, 0.75]]
    assert found.snapshots[0, 0, :, 0].tolist() == [0.125, 0.625]
    assert np.array_equal(found.labels, FIRST.labels)


def test_labels_come_with_the_samples_of_their_search() -> None:
    other = search_of([[0.5, 0.0], [0.0, 0.0]], [[4, 3], [1, 2]], [0.0, 1.0])
    found = joined([FIRST, other], "lowest")
    assert dict(zip(found.labels[0], found.inputs[0, :, 0], strict=True)) == {4: 0.5, 3: 0.0}


@pytest.mark.parametrize("result", ["lowest", "mean"])
def test_all_searches_are_paid_for(result: Any) -> None:
    found = joined([FIRST, SECOND, FIRST], result)
    assert found.iterations.tolist() == [15, 15]
    assert found.evaluations.tolist() == [18, 18]


def test_an_attack_searches_from_several_starts(make_observation: Callable[..., Any]) -> None:
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
def test_what_has_no_mean_is_refused(attack: str, fault: str) -> None:
    with pytest.raises(IncompatibleError, match=fault):
        parse("attack", attack).check(*OTHERS)
