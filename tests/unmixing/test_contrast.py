from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gleak.unmixing.contrast import LAPLACIAN, Contrast

CONTRASTS = [LAPLACIAN, Contrast(power=0.5, smoothing=0.1), Contrast(power=0.2, smoothing=1.0)]
each_contrast = pytest.mark.parametrize("contrast", CONTRASTS, ids=str)


def draw(seed: int, *shape: int) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=stream, dtype=torch.double)


def test_the_measure_is_its_formula() -> None:
    sources = draw(0, 2, 3, 2, 5)
    for victim, total in zip(sources, Contrast(0.7, 0.3).measure(sources), strict=True):
        expected = 0.0
        for source in victim:
            variance = source.square().mean()
            powers = [
                (place.square().sum() + 0.3**2 * variance) ** 0.35 for place in source.T.unbind()
            ]
            expected += torch.stack(powers).mean().log() / 0.7
        torch.testing.assert_close(total, expected)


@each_contrast
@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_scores_are_the_measures_derivatives(contrast: Contrast, scale: float) -> None:
    sources = (scale * draw(1, 2, 3, 3, 8)).requires_grad_()
    (slopes,) = torch.autograd.grad(contrast.measure(sources).sum(), sources)
    torch.testing.assert_close(contrast.scores(sources).values, slopes * 3 * 8)


@each_contrast
def test_slopes_are_the_mean_derivative_of_the_scores(contrast: Contrast) -> None:
    """Of many values, for what all of them share is taken to stay as it is."""
    source = draw(2, 1, 1, 2, 300)
    jacobian = torch.autograd.functional.jacobian(
        lambda values: contrast.scores(values.view_as(source)).values.flatten(), source.flatten()
    )
    expected = jacobian.diagonal().mean()
    found = contrast.scores(source).slopes.squeeze()
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0)


@each_contrast
def test_the_measure_is_homogeneous(contrast: Contrast) -> None:
    sources, factors = draw(3, 2, 3, 3, 8), draw(4, 2, 3, 1, 1)
    grown = contrast.measure(factors * sources)
    torch.testing.assert_close(
        grown, contrast.measure(sources) + factors.abs().log().sum((1, 2, 3))
    )
    products = (contrast.scores(sources).values * sources).mean((2, 3))
    torch.testing.assert_close(products, torch.ones(2, 3, dtype=torch.double))


@each_contrast
def test_sparse_sources_measure_less_than_gaussian_ones(contrast: Contrast) -> None:
    gaussian = draw(5, 1, 1, 1, 5000)
    sparse = draw(6, 1, 1, 1, 5000) * draw(7, 1, 1, 1, 5000).abs()
    sources = torch.cat([gaussian, sparse])
    sources = sources / sources.square().mean((2, 3), keepdim=True).sqrt()
    of_gaussian, of_sparse = contrast.measure(sources)
    assert of_sparse < of_gaussian


@each_contrast
def test_values_of_a_group_are_large_together(contrast: Contrast) -> None:
    sparse = draw(8, 1, 1, 1, 2000) ** 3
    together = sparse.expand(1, 1, 3, 2000)
    apart = torch.cat([sparse.roll(shift, 3) for shift in (0, 1, 2)], 2)
    assert contrast.measure(together) < contrast.measure(apart)
