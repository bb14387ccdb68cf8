"""Linear equations for the pixels of images, against the equations of the images themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gleak.attacks.linear_equations import Equations, LinearProblem, NormalPrior
from tests.attacks.cases import natural_images

SHAPE = (1, 12, 12)
SIZE = 144


def dots(seed: int) -> Tensor:
    """An image of few bright pixels on black; Shape (F)."""
    places = torch.randperm(SIZE, generator=torch.Generator().manual_seed(seed))[:10]
    return torch.zeros(SIZE).index_fill(0, places, 0.9)


def problem(images: Tensor, count: int, seed: int = 0) -> LinearProblem:
    """Equations for random mixtures of products of images with random features."""
    stream = torch.Generator().manual_seed(seed)
    features = torch.randn(count, SIZE, generator=stream, dtype=torch.double) / 12
    offsets = torch.randn(count, generator=stream, dtype=torch.double)
    factors = torch.randn(len(images), 10, generator=stream, dtype=torch.double)
    sent = (images @ features.T + offsets).T @ factors
    mask, used = torch.ones_like(sent).bool(), torch.ones(count, len(images)).bool()
    return LinearProblem(Equations.of(factors, sent, mask, used), features, offsets)


def priors() -> tuple[NormalPrior, NormalPrior]:
    like = torch.zeros(1, dtype=torch.double)
    return NormalPrior.natural(SHAPE, like), NormalPrior.dark(SHAPE, like)


def test_equations_of_a_quantity_are_combined_without_loss() -> None:
    stream = torch.Generator().manual_seed(0)
    values, factors = (torch.randn(*shape, generator=stream).double() for shape in [(6, 3), (3, 8)])
    mask = torch.rand(6, 8, generator=stream) < 0.4
    used = torch.rand(6, 3, generator=stream) < 0.7
    sent = ((values * used) @ factors) * mask
    equations = Equations.of(factors, sent, mask, used)
    torch.testing.assert_close(equations.applied(values * used), equations.sums)
    ranks = [
        torch.linalg.matrix_rank(factors[own][:, row]) for own, row in zip(used, mask, strict=True)
    ]
    assert equations.places.bincount(minlength=6).tolist() == [int(rank) for rank in ranks]


def test_covariance_and_transposition_are_those_of_the_sums() -> None:
    stream = torch.Generator().manual_seed(0)
    equations = Equations(
        torch.randn(5, 2, generator=stream), torch.tensor([0, 2, 2, 1, 0]), torch.zeros(5)
    )
    basis = torch.eye(6).view(6, 3, 2)
    matrix = torch.stack([equations.applied(one) for one in basis], 1)
    roots = torch.randn(2, 3, 3, generator=stream)
    each = [root @ root.T for root in roots]
    whole = torch.zeros(3, 2, 3, 2)
    for number, own in enumerate(each):
        whole[:, number, :, number] = own
    torch.testing.assert_close(equations.covariance(each), matrix @ whole.view(6, 6) @ matrix.T)
    weights = torch.randn(5, generator=stream)
    torch.testing.assert_close(equations.transposed(weights, 3).flatten(), matrix.T @ weights)


@pytest.mark.parametrize("samples", [1, 3])
def test_as_many_equations_as_unknown_pixels_determine_them(samples: int) -> None:
    images = natural_images(samples, SHAPE).flatten(1).double()
    most = torch.zeros_like(images)
    most[:, 40:90] = 1
    found = problem(images, 60).solve(images.where(most == 0, 0.5), most, priors())
    torch.testing.assert_close(found, images, atol=1e-4, rtol=0)


@pytest.mark.parametrize("is_natural", [True, False])
def test_images_follow_from_fewer_equations_by_the_prior_that_suits_them(is_natural: bool) -> None:
    own = natural_images(1, SHAPE, 3)[0].flatten() if is_natural else dots(3)
    image, most = own.double()[None], torch.zeros(1, SIZE, dtype=torch.double)
    most[:, 24:120] = 1
    equations, start = problem(image, 40, 3), image.where(most == 0, 0)
    chosen, *each = (
        equations.solve(start, most, some) for some in (priors(), *((one,) for one in priors()))
    )
    assert chosen.equal(each[0 if is_natural else 1])
    errors = [float((one - image).square().mean()) for one in each]
    assert (errors[0] < errors[1]) is is_natural
    assert chosen.min() >= 0 and chosen.max() <= 1
    assert chosen[:, :24].equal(image[:, :24])


def test_pixels_that_are_known_or_nearly_black_stay() -> None:
    image = natural_images(1, SHAPE).flatten(1).double()
    most = torch.full_like(image, 1e-3)
    most[:, ::2] = 0
    found = problem(image, 5).solve(image, most, priors())
    torch.testing.assert_close(found, image.where(most == 0, image.clamp(max=1e-3)))
