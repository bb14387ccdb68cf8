"""Priors: by statistics of batch normalisation, and those that an attack brings itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from gleak.attacks.matching.engine import match
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.priors import (
    BRIGHT,
    EDGE,
    LEVEL,
    MID,
    PEAK,
    SPREAD,
    BatchNormPrior,
    NaturalImages,
    Prior,
    TotalVariation,
    check_statistics,
)
from gleak.core.errors import IncompatibleError
from gleak.data.natural_images import ImagePrior
from gleak.models.batch_norm import InputStatistics, batch_norm_passes

SHAPE = (2, 4, 4)
Make = Callable[..., Any]


def network(mean: float = 0.0, variance: float = 1.0) -> nn.Module:
    norm = nn.BatchNorm2d(2)
    norm.running_mean.fill_(mean)
    norm.running_var.fill_(variance)
    return nn.Sequential(norm, nn.Flatten(), nn.Linear(32, 3)).eval()


def prior_of(mean: Sequence[float], variance: Sequence[float]) -> BatchNormPrior:
    """A prior that expects these means and variances of each victim's two channels."""
    model = network()
    (layer,) = batch_norm_passes(model, SHAPE)
    means, variances = (torch.tensor(v)[:, None].expand(-1, 2) for v in (mean, variance))
    return BatchNormPrior(1.0, "running", model, [InputStatistics(layer, means, variances)])


def standardised(victims: int) -> Tensor:
    images = torch.randn(victims, 6, *SHAPE)
    images -= images.mean((1, 3, 4), keepdim=True)
    return images / images.var((1, 3, 4), unbiased=False, keepdim=True).sqrt()


def test_images_with_the_expected_statistics_have_none():
    images = standardised(2)
    images[1] = 3 * images[1] + 2
    assert prior_of([0.0, 2.0], [1.0, 9.0])(images).tolist() == pytest.approx([0, 0], abs=1e-3)
    assert (prior_of([2.0, 0.0], [9.0, 1.0])(images) > 0.5).all()


def test_it_is_the_distance_of_means_and_variances_in_their_units():
    constant = torch.full((1, 2, *SHAPE), 5.0)
    assert prior_of([1.0], [4.0])(constant) == pytest.approx((5 - 1) / 2 + (4 - 0) / 4, rel=1e-4)


def test_victims_do_not_share_statistics_and_gradients_exist_at_the_minimum():
    images = torch.rand(3, 2, *SHAPE, requires_grad=True)
    prior = prior_of([0.1, 0.2, 0.3], [1.0, 2.0, 3.0])
    alone = [prior.keep(slice(row, row + 1))(images[row : row + 1]) for row in range(3)]
    assert torch.allclose(prior(images), torch.cat(alone))
    (slope,) = torch.autograd.grad(prior(torch.zeros_like(images) * images).sum(), images)
    assert slope.isfinite().all()


def test_layers_without_running_statistics_are_skipped():
    model = nn.Sequential(nn.BatchNorm2d(2, track_running_stats=False), *network(0.5, 4)).eval()
    check_statistics(model, SHAPE, "running")
    expected = [None, InputStatistics(model[1], torch.full((1, 2), 0.5), torch.full((1, 2), 4.0))]
    found = BatchNormPrior(1.0, "running", model, expected)(2 * standardised(1))
    assert found.item() == pytest.approx(1, abs=0.1)


def test_networks_without_the_expected_statistics_are_refused():
    plain = nn.Sequential(nn.Flatten(), nn.Linear(32, 3))
    for source in ("running", "granted"):
        with pytest.raises(IncompatibleError, match="in this one none runs; use invertgrad"):
            check_statistics(plain, SHAPE, source)
    forgetful = nn.Sequential(nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten()).eval()
    check_statistics(forgetful, SHAPE, "granted")
    with pytest.raises(IncompatibleError, match=r"keeps running .*use statistics=granted"):
        check_statistics(forgetful, SHAPE, "running")


@dataclass(frozen=True)
class Grey(Prior):
    """Prior of an attack's own: the mean squared distance from grey, or an error."""

    title: ClassVar[str] = "grey"
    broken: bool = False

    def __call__(self, inputs: Tensor) -> Tensor:
        assert not self.broken
        return (inputs - 0.5).square().flatten(1).mean(1)


@pytest.mark.parametrize("model", ["lenet+width=3", "mlp+hidden=5"])
def test_an_attack_may_bring_a_prior_of_its_own(
    model: str, make_observation: Make, make_parts: Make
):
    """One of weight zero is never computed."""
    observation, inputs, _ = make_observation(model)
    parts = make_parts(priors=[Grey(2.0), TotalVariation(0.0), Grey(0.0, broken=True)])
    problem = GradientMatching.of(observation, parts)
    evaluation = problem.evaluate(inputs.flatten(1))
    term = (inputs - 0.5).square().flatten(1).mean(1)
    torch.testing.assert_close(evaluation.objective, 2 * term / problem.scale)
    heavy, none = (
        torch.from_numpy(match(observation, make_parts(priors=[Grey(weight)])).inputs)
        for weight in (1e3, 0.0)
    )
    assert (Grey(1.0)(heavy) < 0.5 * Grey(1.0)(none)).all()


def bright_images(count: int) -> torch.Tensor:
    """Images whose brightest values have their usual mean; Shape (count, 1, *SHAPE)."""
    images = torch.rand(count, 1, *SHAPE, generator=torch.Generator().manual_seed(0)).double()
    largest = images.flatten(1).topk(int(BRIGHT * images[0].numel())).values.mean(1)
    return images * LEVEL / largest.view(-1, *[1] * (images.ndim - 1))


def test_the_prior_of_images_is_minus_the_logarithm_of_their_density() -> None:
    """Up to a constant: compared with the normal density of all values at once."""
    images = ImagePrior.natural(SHAPE, torch.zeros(1).double())
    size = len(images.mean)
    scatter = images.coloured(torch.eye(size).double()) - images.mean
    density = torch.distributions.MultivariateNormal(
        images.mean.double(), covariance_matrix=scatter.T @ scatter
    )
    values = bright_images(5)
    found = NaturalImages(1.0, images)(values)
    expected = -density.log_prob(values.flatten(2)).sum(1)
    outside = (values - values.clamp(0, 1)).flatten(1).square().sum(1) / (2 * EDGE**2)
    torch.testing.assert_close(found - found[0], expected + outside - expected[0] - outside[0])


def test_values_outside_of_the_range_are_improbable() -> None:
    prior = NaturalImages(1.0, ImagePrior.natural(SHAPE, torch.zeros(1)))
    for inside, outside in ((0.95, 1.15), (0.05, -0.15)):
        within, beyond = (prior(torch.full((1, 1, *SHAPE), value)) for value in (inside, outside))
        assert beyond > within + 2 * SHAPE[0] * SHAPE[1] * SHAPE[2]


def test_brightness_is_log_normal_and_the_rest_has_no_scale() -> None:
    """Otherwise the prior would prefer dark images, whose gradients have another length."""
    prior = NaturalImages(1.0, ImagePrior.natural(SHAPE, torch.zeros(1).double()))
    bright = bright_images(1).clamp(0, 1)
    bright *= LEVEL / bright.flatten().topk(int(BRIGHT * bright.numel())).values.mean()
    expected = math.log(2) ** 2 / (2 * PEAK**2)
    inside = prior(bright) - (bright - bright.clamp(0, 1)).square().sum() / (2 * EDGE**2)
    assert float(prior(bright / 2) - inside) == pytest.approx(expected, rel=1e-3)


def test_rows_of_a_table_have_independent_values(make_observation: Make) -> None:
    seen, rows, _ = make_observation("mlp+hidden=5")
    prior = NaturalImages(1.0).of(seen)
    assert prior.images is None
    expected = -torch.distributions.Normal(MID, SPREAD).log_prob(rows).sum((1, 2))
    found = prior(rows)
    torch.testing.assert_close(found - found[0], expected - expected[0])
    seen, images, _ = make_observation()
    assert NaturalImages(1.0).of(seen)(images).shape == (3,)
