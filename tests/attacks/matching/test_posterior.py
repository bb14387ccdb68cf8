"""Posterior of samples and labels: its value, labels by it, and the search for its maximum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.attacks.map import MAP
from gleak.attacks.matching import label_search
from gleak.attacks.matching import posterior as posteriors
from gleak.attacks.matching.codes import Pixels
from gleak.attacks.matching.distances import ProfileLikelihood, SquaredError
from gleak.attacks.matching.posterior import LEVELS, ROUNDS, Posterior
from gleak.attacks.matching.priors import NaturalImages
from gleak.attacks.observation import Observation
from gleak.testing.tiny_cells import TinyCells
from tests.attacks.cases import holding, natural_images

Make = Callable[..., Any]
Case = tuple[Posterior, np.ndarray, np.ndarray]
SHAPE = (3, 8, 8)


def posterior_of(seen: Observation) -> Posterior:
    (attack,) = MAP().proposals(seen.of_victim(0), 100)
    return Posterior.of(seen, attack.parts())


@pytest.fixture
def make_case(make_observation: Make) -> Callable[..., Case]:
    """Return the posterior of V victims with natural images, these, and their labels."""

    def make(model: str = "lenet+width=3", samples: int = 2, victims: int = 2) -> Case:
        seen, _, _ = make_observation(model, victims=victims, samples=samples)
        labels = (torch.arange(samples) + torch.arange(victims)[:, None]) % 4
        inputs = natural_images(victims * samples, SHAPE).view(victims, samples, *SHAPE).numpy()
        seen = replace(holding(seen, inputs, labels.numpy()), granted={})
        return posterior_of(seen), inputs, labels.numpy()

    return make


def test_the_criterion_is_that_of_likelihood_and_prior(make_case: Callable[..., Case]) -> None:
    posterior, inputs, labels = make_case()
    samples = torch.from_numpy(inputs)
    prior = NaturalImages(1.0).of(posterior.observation)(samples).numpy()
    own = posterior.problem.parts
    assert isinstance(own.distance, ProfileLikelihood)
    alone = replace(posterior, problem=replace(posterior.problem, priors=()))
    likelihood = alone.criterion(inputs, labels)
    assert (likelihood < 100).all()
    np.testing.assert_allclose(posterior.criterion(inputs, labels), likelihood + prior, rtol=1e-5)


def test_the_truth_has_the_least_criterion_and_no_error(make_case: Callable[..., Case]) -> None:
    posterior, inputs, labels = make_case()
    assert (posterior.squared_error(inputs, labels) < 1e-11).all()
    best = posterior.criterion(inputs, labels)
    for other in (inputs[:, ::-1].copy(), inputs[::-1].copy(), np.full_like(inputs, 0.5)):
        assert (posterior.criterion(other, labels) > best).all()
        assert (posterior.squared_error(other, labels) > 1e-6).all()
    assert (posterior.criterion(inputs, (labels + 1) % 4) > best).all()


def test_samples_without_values_have_an_infinite_criterion(make_case: Callable[..., Case]) -> None:
    posterior, inputs, labels = make_case()
    inputs = inputs.copy()
    inputs[1, 0, 0, 0, 0] = np.nan
    assert np.isinf(posterior.criterion(inputs, labels)).tolist() == [False, True]


def test_victims_may_be_repeated(make_case: Callable[..., Case]) -> None:
    posterior, inputs, labels = make_case()
    rows = np.array([1, 0, 1])
    kept, expected = posterior.keep(rows), posterior.criterion(inputs, labels)[rows]
    np.testing.assert_allclose(kept.criterion(inputs[rows], labels[rows]), expected, rtol=1e-6)
    assert kept.observation.victim_ids.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("defense", "expected"),
    [
        ("none", True),
        ("topk+keep=0.9", True),
        ("topk+keep=0.1", False),
        ("random_mask+keep=0.1", False),
        ("low_rank+rank=1", False),
        ("low_rank+rank=2", True),
        ("signsgd", True),
    ],
)
def test_samples_are_determined_by_as_many_values_as_they_have(
    defense: str, expected: bool, cells: TinyCells
) -> None:
    """Two of 192 values each; the network has 1180 parameters, of which rank 1 sends 307."""
    folder = cells.simulate("image", client="fedsgd+batch_size=2+victims=2", defense=defense)
    posterior = posterior_of(cells.observe(folder, MAP()))
    assert posterior.determined.tolist() == [expected] * 2


@pytest.mark.parametrize("given", ["none", "reversed", "wrong"])
def test_labels_are_those_of_the_samples_in_their_order(
    given: str, make_case: Callable[..., Case]
) -> None:
    posterior, inputs, labels = make_case(samples=3)
    known = {"none": -np.ones_like(labels), "reversed": labels[:, ::-1], "wrong": (labels + 1) % 4}
    order = [2, 0, 1]
    found, criterion = posterior.labelled(inputs[:, order], known[given].copy())
    np.testing.assert_array_equal(criterion, posterior.criterion(inputs[:, order], found))
    np.testing.assert_array_equal(found, labels[:, order])


def test_the_labels_of_one_sample_are_enumerated_if_the_given_one_is_wrong(
    make_case: Callable[..., Case],
) -> None:
    posterior, inputs, labels = make_case(samples=1)
    found, criterion = posterior.labelled(inputs, (labels + 2) % 4)
    np.testing.assert_array_equal(found, labels)
    np.testing.assert_array_equal(criterion, posterior.criterion(inputs, labels))


def test_labels_that_a_rule_tells_for_certain_cost_nothing(make_case: Callable[..., Case]) -> None:
    posterior, _, labels = make_case(samples=1)
    found, spent = posterior.likely_labels()
    np.testing.assert_array_equal(found, labels)
    assert spent.tolist() == [0, 0]


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("first", [20, 5])
def test_other_labels_are_found_by_short_searches(
    samples: int, first: int, make_case: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classifier's gradient was not sent, so there is no rule."""
    monkeypatch.setattr(posteriors, "ROUNDS", rounds := ((first, 3), *ROUNDS[1:]))
    posterior, _, labels = make_case(samples=samples)
    seen = posterior.observation
    hidden = {name: torch.zeros_like(seen.update[name]) for name in [*seen.update][-2:]}
    sent = {name: value.bool() for name, value in hidden.items()}
    masked = posterior_of(replace(seen, update={**seen.update, **hidden}, sent=sent))
    found, spent = masked.likely_labels()
    count = expected = len(LEVELS) * (4 if samples == 1 else 8)
    for kept, evaluations in rounds:
        if count > kept:
            expected, count = expected + min(2, samples) * count * evaluations, kept
    assert spent.tolist() == [expected] * 2
    if samples == 1:
        np.testing.assert_array_equal(found, labels)
    assert found.shape == labels.shape


def test_hypotheses_are_searched_in_parts_as_all_at_once(
    make_case: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    posterior, _, labels = make_case(samples=1)
    given = torch.from_numpy(labels)
    whole = posterior._enumerated(given)
    values = sum(value[0].numel() for value in posterior.problem.observed.values())
    monkeypatch.setattr(label_search, "VALUES", 3 * values)
    parts = posterior._enumerated(given)
    assert whole[0].equal(parts[0])
    assert whole[1] == parts[1]


def test_a_search_begins_at_given_samples_and_comes_closer(make_case: Callable[..., Case]) -> None:
    posterior, inputs, labels = make_case()
    start = (inputs + 0.02 * np.cos(np.arange(8)).astype(np.float32)).clip(0, 1)
    found = posterior.search(labels, 10, start)
    np.testing.assert_allclose(found.snapshots[:, 0], start, atol=1e-5)
    assert (posterior.criterion(found.inputs, labels) < posterior.criterion(start, labels)).all()
    np.testing.assert_array_equal(found.labels, labels)
    exact = posterior.search(
        labels, 10, start, code=Pixels(), distance=SquaredError(), priors=(), box=True
    )
    before, after = (posterior.squared_error(one, labels) for one in (start, exact.inputs))
    assert (after < before).all()
    assert exact.objective is not None
    np.testing.assert_allclose(exact.objective, after, rtol=1e-3)


def test_draws_of_variational_layers_are_unknowns_beside_the_samples(cells: TinyCells) -> None:
    folder = cells.simulate("image", model="lenet+width=4+precode=5", client="fedsgd+victims=2")
    posterior = posterior_of(cells.observe(folder, MAP()))
    truth = Private.read(folder / "private.h5")
    points = posterior.points(truth.inputs)
    assert points.shape == (2, posterior.problem.unknowns)
    assert points.shape[1] > 192
    assert not points[:, 192:].any()
    assert np.isfinite(posterior.criterion(truth.inputs, truth.labels)).all()
    assert posterior.search(truth.labels, 2, truth.inputs).inputs.shape == truth.inputs.shape
