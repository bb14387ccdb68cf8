"""Joint matching of several updates, and pairing of their samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy.optimize import linear_sum_assignment

from gleak.attacks.matching.epoch_matching import (
    JointMatching,
    WeightedUpdate,
    image_distances,
    pair_greedily,
    share_a_label,
)
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.run_attack import observe
from gleak.core.registry import parse
from tests.attacks.matching.slopes import assert_gradient_of_objective, assert_victims_are_kept

SPEC = parse("attack", "agic_epochs+tv=0.05")
CLIENT = "epochs+victims=2+batch_size=4+update_size=2+labels=unique+server_lr=0.5"
PLACES = [torch.tensor([0, 1]), torch.tensor([2, 0])]


@pytest.fixture
def updates(simulate: Callable[..., Path]) -> list[WeightedUpdate]:
    """Return two updates; the first sample of one and the second of the other are the same."""
    folder = simulate(client=CLIENT)
    observation = observe(folder / "update.h5", folder / "model.h5", {}, seed=0, device="cpu")
    return [
        WeightedUpdate(observation.of_round(number), places, weight)
        for number, places, weight in zip((0, 3), PLACES, (1.0, 0.25), strict=True)
    ]


def test_it_is_the_weighted_sum_of_each_updates_objective(updates: list[WeightedUpdate]):
    joint = JointMatching.of(updates, SPEC.parts())
    points = torch.rand(2, joint.unknowns)
    assert joint.shape[0] == 3
    found, samples = joint.evaluate(points), joint.inputs(points)
    expected = 0.0
    for part in updates:
        alone = GradientMatching.of(part.observation, SPEC.parts())
        expected += part.weight * alone.evaluate(samples[:, part.places].flatten(1)).objective
    torch.testing.assert_close(found.objective, expected)
    assert_gradient_of_objective(joint, 0.05)
    assert_victims_are_kept(joint)


def test_a_shared_sample_hears_of_all_its_updates(updates: list[WeightedUpdate]):
    """Without the second update's weight, the gradient of its other sample is zero."""
    silent = [updates[0], replace(updates[1], weight=0.0)]
    joint = JointMatching.of(silent, SPEC.parts())
    gradient = joint.inputs(joint.evaluate(torch.rand(2, joint.unknowns)).gradient)
    assert (gradient[:, 2] == 0).all()
    assert gradient[:, :2].abs().flatten(2).sum(2).min() > 0


def test_distances_are_mean_squared_errors():
    first, second = torch.rand(3, 2, 4, 4), torch.rand(5, 2, 4, 4)
    expected = (first[:, None] - second[None]).square().mean((2, 3, 4))
    torch.testing.assert_close(image_distances(first, second, pooled=False), expected)


def test_pooling_takes_noise_away():
    torch.manual_seed(0)
    images = torch.rand(1, 1, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    noisy = images + 0.1 * torch.randn(200, 1, 8, 8)
    plain, pooled = (
        image_distances(images, noisy, pooled=pooled).mean() for pooled in (False, True)
    )
    assert float(pooled / plain) == pytest.approx(1 / 4, rel=0.05)


def test_updates_share_a_label():
    first, second = torch.tensor([[0, 1], [2, 2]]), torch.tensor([[1, 3], [0, 2], [4, 5]])
    assert share_a_label(first, second).tolist() == [[True, True, False], [False, True, False]]


def test_pairs_that_are_not_allowed_come_last():
    costs = torch.tensor([[0.1, 2.0, 3.0], [1.0, 0.2, 5.0], [0.3, 0.4, 9.0]])
    allowed = torch.tensor([[False, True, False], [False, False, True], [False, False, False]])
    assert pair_greedily(costs, allowed).tolist() == [1, 2, 0]


@pytest.mark.parametrize("seed", range(5))
def test_each_is_taken_once_and_clear_cases_as_the_best_assignment_has_them(seed: int):
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(9, generator=random)
    costs = 1 + torch.rand(9, 9, generator=random)
    costs[torch.arange(9), order] = torch.rand(9, generator=random)
    found = pair_greedily(costs, torch.ones(9, 9).bool())
    assert found.tolist() == order.tolist() == linear_sum_assignment(costs)[1].tolist()
