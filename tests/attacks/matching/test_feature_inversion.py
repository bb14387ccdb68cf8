from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.attacks.matching import image_inversion
from gleak.attacks.matching.distances import Cosine
from gleak.attacks.matching.engine import solve
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.image_inversion import FeatureInversion, GuidedInversion
from gleak.attacks.matching.optimizers import Adam
from gleak.attacks.matching.parts import Parts
from gleak.attacks.matching.priors import TotalVariation, total_variation
from tests.attacks.matching.slopes import assert_gradient_of_objective, assert_victims_are_kept

Make = Callable[..., Any]


def wide_features() -> nn.Module:
    """Build eight filters and a nonlinearity: more features than pixels, which determine them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 8, 3, padding=1), nn.LeakyReLU(0.3), nn.Flatten()
    return nn.Sequential(*layers).requires_grad_(False)


def inverting(inputs: Tensor, parts: Parts, features: nn.Module | None = None) -> FeatureInversion:
    """Return the problem whose solution is these inputs; Shape (V, N, C, H, W)."""
    features = features or wide_features().to(inputs.dtype)
    embeddings = features(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])
    return FeatureInversion(
        parts=parts,
        observed={"embeddings": embeddings},
        targets=torch.zeros(*inputs.shape[:2], 4),
        shape=inputs.shape[1:],
        classes=4,
        features=features,
    )


@pytest.fixture
def images() -> Tensor:
    """Draw images of three victims, two each."""
    return torch.rand(3, 2, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double()


@pytest.fixture
def elsewhere(images: Tensor) -> Tensor:
    """Draw other points, flat."""
    return torch.rand(images.shape, generator=torch.Generator().manual_seed(2)).double().flatten(1)


def test_the_truth_has_distance_zero(images: Tensor, elsewhere: Tensor, make_parts: Make):
    problem = inverting(images, make_parts(priors=[TotalVariation(0.5)]))
    truth = problem.evaluate(images.flatten(1))
    assert truth.distance.abs().max() < 1e-12
    torch.testing.assert_close(truth.objective, 0.5 * total_variation(images))
    assert (problem.evaluate(elsewhere).distance > 1e-3).all()
    assert_gradient_of_objective(problem, 1e-5)


def test_every_image_is_sought_for_itself_in_groups_of_any_size(
    images: Tensor, elsewhere: Tensor, make_parts: Make, monkeypatch: pytest.MonkeyPatch
):
    """Images as separate victims differ only by the mean over a batch."""
    parts = make_parts(priors=[TotalVariation(0.5)])
    alone = inverting(images.flatten(0, 1)[:, None], parts).evaluate(elsewhere.reshape(6, -1))
    problem = inverting(images, parts)
    for values in (1, 4 * images[0, 0].numel(), 2**20):
        monkeypatch.setattr(image_inversion, "CPU_VALUES", values)
        together = problem.evaluate(elsewhere)
        torch.testing.assert_close(together.objective, alone.objective.reshape(3, 2).mean(1))
        torch.testing.assert_close(together.gradient.reshape(6, -1), alone.gradient / 2)


def test_an_embedding_of_zeros_leaves_everything_finite(images: Tensor, make_parts: Make):
    dead = nn.Sequential(nn.Flatten(), nn.Threshold(2.0, 0.0))
    found = inverting(images, make_parts(priors=[TotalVariation(0.5)]), dead).evaluate(
        images.flatten(1)
    )
    assert torch.equal(found.distance, torch.ones(3).double())
    assert found.gradient.isfinite().all()


def test_images_are_recovered_from_features_that_tell_them(
    make_observation: Make, make_parts: Make
):
    observation, inputs, _ = make_observation()
    parts = make_parts(optimizer=Adam(lr=0.1, schedule="cosine"), iterations=200, box=True)
    found = solve(inverting(inputs, parts), observation)
    np.testing.assert_allclose(found.inputs, inputs.numpy(), atol=0.05)
    assert (found.objective < 1e-3 * found.trace_objective[:, 0]).all()


def test_gradients_guide_with_their_weight(make_observation: Make, make_parts: Make):
    observation, inputs, _ = make_observation()
    parts = make_parts(priors=[TotalVariation(0.5)])
    matching = GradientMatching.of(observation, make_parts(distance=Cosine(), labels="joint"))
    inversion = inverting(inputs, parts)
    guided = GuidedInversion.of(inversion, matching, 3.0)
    points = torch.rand(3, guided.unknowns, generator=torch.Generator().manual_seed(0))
    assert guided.unknowns == guided.values + 2 * 4
    found, features, gradients = (
        problem.evaluate(points) for problem in (guided, inversion, matching)
    )
    for name in ("objective", "distance", "gradient"):
        expected = getattr(features, name) + 3 * getattr(gradients, name)
        torch.testing.assert_close(getattr(found, name), expected)
    assert not features.gradient[:, guided.values :].any()
    assert torch.equal(guided.soft_labels(points), matching.soft_labels(points))
    assert_victims_are_kept(guided)
