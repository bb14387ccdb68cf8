from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching.engine import solve
from gleak.attacks.matching.image_inversion import GeneratorInversion, euclidean, perceptual
from gleak.attacks.matching.optimizers import Adam
from gleak.attacks.matching.starts import Normal
from gleak.runtime.perceptual import perceptual_distances, perceptual_network
from tests.attacks.matching.slopes import assert_gradient_of_objective, assert_victims_are_kept

Make = Callable[..., Any]

SHAPE, CLASSES = (3, 8, 8), 4


class Blocks(nn.Module):
    """Generator whose four codes are the brightness of four quarters, at a level of the class."""

    code_size, classes = 4, CLASSES

    def generate(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Generate images; see `gleak.knowledge.base.ImageGenerator`."""
        quarters = (codes + labels[:, None]).sigmoid().reshape(-1, 1, 2, 2)
        return quarters.repeat_interleave(4, 2).repeat_interleave(4, 3).expand(-1, *SHAPE)


def reversed_order(one: Tensor, other: Tensor) -> Tensor:
    """Compute a dissimilarity: distance to the mirrored images."""
    return (one - other.flip(-1)).square().mean((1, 2, 3))


@pytest.fixture
def labels() -> Tensor:
    return torch.tensor([[0, 3], [1, 1], [2, 0]])


@pytest.fixture
def codes() -> Tensor:
    """Return codes of three victims with two images each."""
    return torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(1)).double()


@pytest.fixture
def images(codes: Tensor, labels: Tensor) -> Tensor:
    return Blocks().generate(codes.flatten(0, 1), labels.flatten()).unflatten(0, (3, 2))


@pytest.fixture
def pose(
    images: Tensor, labels: Tensor, make_parts: Make, make_observation: Make
) -> Callable[..., GeneratorInversion]:
    """Return the problem whose solution is the codes."""

    def make(*terms: Any, **parts: Any) -> GeneratorInversion:
        observation, _, _ = make_observation()
        coarse = Reconstruction(
            inputs=images.numpy(), labels=labels.numpy(), converged=np.ones(3, bool)
        )
        made = make_parts(**{"start": Normal(), **parts})
        functions = terms or [(1.0, euclidean)]
        problem = GeneratorInversion.of(coarse, observation, made, Blocks(), functions)
        return dataclasses.replace(problem, observed={"images": images})

    return make


def test_the_codes_themselves_have_distance_zero(pose: Make, codes: Tensor, images: Tensor):
    problem, points = pose(), codes.flatten(1)
    assert problem.unknowns == problem.values == 2 * 4
    assert problem.evaluate(points).objective.abs().max() < 1e-12
    torch.testing.assert_close(problem.inputs(points), images)


def test_the_objective_is_the_weighted_sum_of_its_terms(pose: Make, codes: Tensor, images: Tensor):
    problem, elsewhere = pose((0.5, euclidean), (3.0, reversed_order)), codes.flatten(1) + 1.0
    pairs = problem.inputs(elsewhere).flatten(0, 1), images.flatten(0, 1)
    expected = 0.5 * (pairs[0] - pairs[1]).flatten(1).norm(dim=1) + 3 * reversed_order(*pairs)
    found = problem.evaluate(elsewhere)
    torch.testing.assert_close(found.objective, expected.reshape(3, 2).mean(1))
    torch.testing.assert_close(found.distance, found.objective)
    assert_gradient_of_objective(problem, 1e-5)
    assert_victims_are_kept(problem)


def test_images_are_found_and_keep_their_labels(
    pose: Make, make_observation: Make, images: Tensor, labels: Tensor
):
    """Victims that converge one after the other, so that pictures are taken of some alone."""
    observation, _, _ = make_observation()
    problem = pose(optimizer=Adam(lr=0.1), iterations=400, threshold=0.05)
    single = dataclasses.replace(problem, observed={"images": images.float()})
    found = solve(single, observation)
    assert found.converged.all()
    np.testing.assert_allclose(found.inputs, images, atol=0.05)
    assert np.array_equal(found.labels, labels)
    assert len(set(found.iterations)) > 1
    assert found.snapshots is not None
    np.testing.assert_allclose(found.snapshots[:, -1], found.inputs, atol=1e-6)


@pytest.mark.usefixtures("random_weights")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_perceptual_term_is_lpips_and_can_be_derived(dtype: torch.dtype):
    one, other = torch.rand(2, 3, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    wanted = other.to(dtype)
    moved = one.to(dtype).requires_grad_()
    found = perceptual(wanted)(moved, wanted)
    expected = perceptual_distances(perceptual_network(), one, other)
    torch.testing.assert_close(found.float(), expected, rtol=1e-3, atol=1e-6)
    (slopes,) = torch.autograd.grad(found.sum(), moved)
    assert slopes.isfinite().all() and slopes.any()
