from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.parts import ClientModel, Parts
from gleak.attacks.matching.priors import TotalVariation, total_variation
from gleak.core.registry import parse
from gleak.testing.model_contract import truth_distance
from tests.attacks.matching.slopes import assert_gradient_of_objective

MakeParts = Callable[..., Parts]
MakeObservation = Callable[..., Any]


@pytest.mark.parametrize("model", ["lenet+width=3", "mlp+hidden=5"])
def test_the_truth_has_distance_zero(
    model: str, make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    observation, inputs, _ = make_observation(model)
    problem = GradientMatching.of(observation, make_parts())
    truth = problem.evaluate(inputs.flatten(1))
    elsewhere = problem.evaluate(1 - inputs.flatten(1))
    assert (truth.distance < 1e-10).all()
    assert (truth.gradient.norm(dim=1) < 1e-4 * elsewhere.gradient.norm(dim=1)).all()
    assert (elsewhere.distance > 1e-4).all()


@pytest.mark.parametrize(
    ("client", "client_model"),
    [
        ("fedsgd+batch_size=3", "one_step"),
        ("fedavg+batch_size=4+mini_batch=2+local_steps=4+local_lr=0.1", "unrolled"),
    ],
)
def test_the_truth_of_clients_in_training_mode_has_distance_zero(
    client: str, client_model: ClientModel
) -> None:
    model = parse("model", "vgg_small+width=3+hidden=6+norm=batch").build((3, 8, 8), 4)
    training = parse("client", f"{client}+batch_norm=training")
    found = truth_distance(model.double().eval(), training, client_model, (3, 8, 8), 4)
    assert (found < 1e-15).all()


def test_priors_are_added_to_the_relative_distance(
    make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    observation, inputs, labels = make_observation()
    problem = GradientMatching.of(
        observation, make_parts(priors=[TotalVariation(0.5)], label_term=2.0)
    )
    points = inputs.flatten(1) / 2
    found = problem.evaluate(points)
    scale = sum(value.flatten(1).square().sum(1) for value in observation.update.values())
    logits = observation.model(inputs.flatten(0, 1) / 2)
    wrong = logits.softmax(1) - functional.one_hot(labels.flatten(), 4)
    term = wrong.square().sum(1).unflatten(0, labels.shape).sum(1)
    expected = found.distance + (0.5 * total_variation(inputs / 2) + 2 * term) / scale
    torch.testing.assert_close(found.objective, expected)


def test_tables_have_no_total_variation(
    make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    observation, inputs, _ = make_observation("mlp+hidden=5")
    problem = GradientMatching.of(observation, make_parts(priors=[TotalVariation(0.5)]))
    found = problem.evaluate(inputs.flatten(1) / 2)
    assert torch.equal(found.objective, found.distance)


@pytest.mark.parametrize("labels", ["known", "joint"])
def test_the_gradient_is_that_of_the_objective(
    labels: str, make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    observation, _, _ = make_observation("mlp+hidden=5")
    problem = GradientMatching.of(observation, make_parts(labels=labels, label_term=0.1))
    assert_gradient_of_objective(problem, 3, 1e-2)


def test_joint_labels_are_unknowns_behind_the_pixels(
    make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    observation, inputs, labels = make_observation("mlp+hidden=5")
    problem = GradientMatching.of(observation, make_parts(labels="joint"))
    logits = 50 * functional.one_hot(labels, 4).float()
    points = torch.cat([inputs.flatten(1), logits.flatten(1)], 1)
    assert points.shape[1] == problem.unknowns == problem.values + 2 * 4
    assert torch.equal(problem.inputs(points), inputs)
    assert torch.equal(problem.soft_labels(points).argmax(2), labels)
    assert (problem.evaluate(points).distance < 1e-8).all()


def test_labels_are_inferred_from_the_update_alone(
    make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    observation, _, labels = make_observation("mlp+hidden=5", samples=1, granted={})
    for rule in ("argmin", "sign"):
        problem = GradientMatching.of(observation, make_parts(labels=rule))
        assert torch.equal(problem.targets.argmax(2), labels)


@pytest.mark.parametrize("rows", [slice(1, 3), torch.tensor([True, False, True])])
@pytest.mark.parametrize("labels", ["known", "joint"])
def test_victims_kept_pose_the_same_problem(
    rows: Any, labels: str, make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    observation, _, _ = make_observation()
    problem = GradientMatching.of(observation, make_parts(labels=labels))
    points = torch.rand(3, problem.unknowns, generator=torch.Generator().manual_seed(0))
    some, every = problem.keep(rows).evaluate(points[rows]), problem.evaluate(points)
    torch.testing.assert_close(some.objective, every.objective[rows])
    torch.testing.assert_close(some.gradient, every.gradient[rows], rtol=1e-4, atol=1e-6)


def test_only_what_was_sent_is_compared(
    make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    observation, inputs, _ = make_observation()
    sent = {name: torch.rand(value.shape) < 0.7 for name, value in observation.update.items()}
    update = {name: value * sent[name] for name, value in observation.update.items()}
    partial = dataclasses.replace(observation, update=update, sent=sent)
    truth = inputs.flatten(1)
    distance = {
        compared: GradientMatching.of(partial, make_parts(labels="known", compared=compared))
        .evaluate(truth)
        .distance.max()
        for compared in ("sent", "all")
    }
    assert distance["sent"] < 1e-10 < 1e-3 < distance["all"]


def test_a_mask_that_nobody_speaks_of_can_be_left_out(
    make_observation: MakeObservation, make_parts: MakeParts
) -> None:
    """Zeros that a defence wrote travel like other values."""
    observation, inputs, _ = make_observation()
    update = dict(observation.update)
    name = next(reversed([name for name, value in update.items() if value.ndim > 3]))
    update[name] = update[name] * (torch.arange(update[name].shape[-1]) % 2)
    masked = dataclasses.replace(observation, update=update)
    truth = inputs.flatten(1)
    problems = {
        compared: GradientMatching.of(masked, make_parts(labels="known", compared=compared))
        for compared in ("sent", "nonzero")
    }
    distance = {of: problem.evaluate(truth).distance.max() for of, problem in problems.items()}
    assert distance["nonzero"] < 1e-10 < 1e-3 < distance["sent"]
    assert name in problems["nonzero"].sent
