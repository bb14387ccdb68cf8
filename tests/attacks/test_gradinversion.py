"""GradInversion: the prior by running statistics helps on a network that was trained."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gleak
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse

SHAPE = (3, 8, 8)


def trained_network(images: torch.Tensor) -> nn.Module:
    """Return a network whose running statistics are those of images."""
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16, momentum=None),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 4),
    )
    with torch.no_grad():
        network.train()(images)
    return network.eval()


def test_the_prior_recovers_more_than_the_gradient_alone() -> None:
    torch.manual_seed(0)
    images = 0.5 + 0.05 * torch.randn(64, *SHAPE).cumsum(3).clamp(-8, 8)
    network, secret = trained_network(images), images[:1].clamp(0, 1)
    update = gleak.compute_update(network, secret, torch.tensor([1]))
    scores = {
        spec: gleak.score(gleak.attack(f"{spec}+iterations=150", network, update, SHAPE), secret)
        for spec in ("invertgrad+tv=0", "gradinversion+tv=0+batch_norm=0.1")
    }
    without, with_prior = (float(found["psnr"]) for found in scores.values())
    assert with_prior > without + 1


def test_models_without_batch_normalisation_are_refused_from_their_specs() -> None:
    levels = parse("dataset", "photos"), parse("model", "lenet"), parse("client", "fedsgd")
    with pytest.raises(IncompatibleError, match="running statistics"):
        parse("attack", "gradinversion").check(*levels)
