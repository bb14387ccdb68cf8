"""Prior by the running statistics of batch normalisation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.core.errors import IncompatibleError
from gleak.matching.batch_norm_prior import BatchNormPrior


def network(mean: float = 0.0, variance: float = 1.0) -> nn.Module:
    norm = nn.BatchNorm2d(2)
    norm.running_mean.fill_(mean)
    norm.running_var.fill_(variance)
    return nn.Sequential(norm, nn.Flatten(), nn.Linear(32, 3)).eval()


def test_images_with_the_running_statistics_have_none() -> None:
    images = torch.randn(1, 6, 2, 4, 4)
    images -= images.mean((1, 3, 4), keepdim=True)
    images /= images.var((1, 3, 4), unbiased=False, keepdim=True).sqrt()
    assert BatchNormPrior.of(network())(images) == pytest.approx(0, abs=1e-3)
    assert BatchNormPrior.of(network(2, 9))(3 * images + 2) == pytest.approx(0, abs=1e-3)


def test_it_is_the_distance_of_means_and_variances_in_their_units() -> None:
    constant = torch.full((1, 2, 2, 4, 4), 5.0)
    prior = BatchNormPrior.of(network(mean=1, variance=4))
    assert prior(constant) == pytest.approx((5 - 1) / 2 + (4 - 0) / 4, rel=1e-4)


def test_victims_do_not_share_statistics_and_gradients_exist_at_the_minimum() -> None:
    images = torch.rand(3, 2, 2, 4, 4, requires_grad=True)
    prior = BatchNormPrior.of(network())
    alone = torch.cat([prior(each[None]) for each in images])
    assert torch.allclose(prior(images), alone)
    (slope,) = torch.autograd.grad(prior(torch.zeros_like(images) * images).sum(), images)
    assert slope.isfinite().all()


def test_a_network_without_running_statistics_is_refused() -> None:
    with pytest.raises(IncompatibleError, match="keeps running statistics"):
        BatchNormPrior.of(nn.Linear(3, 3))
