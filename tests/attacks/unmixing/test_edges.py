"""Differences of images, and images of one colour in mixtures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.attacks.unmixing.edges import (
    differences,
    find_flat_image,
    variation_weights,
    white_differences,
    without,
)
from gleak.attacks.unmixing.mixtures import Mixture

SHAPES = [(1, 5, 7), (3, 6, 4), (3, 2, 2), (2, 1, 5), (1, 4, 1), (1, 1, 1)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


@each_shape
@pytest.mark.parametrize("orders", [1, 2])
def test_differences_are_those_of_numpy(shape: tuple[int, ...], orders: int) -> None:
    images = draw(0, 4, *shape)
    expected = [
        np.diff(images.numpy(), n=order, axis=axis).reshape(4, shape[0], -1)
        for axis in (2, 3)
        for order in range(1, orders + 1)
    ]
    found = differences(images, orders)
    np.testing.assert_allclose(found.numpy(), np.concatenate(expected, 2), atol=1e-15)


@each_shape
def test_a_place_is_the_same_in_every_channel(shape: tuple[int, ...]) -> None:
    images = draw(1, 2, *shape)
    for channel in range(shape[0]):
        alone = differences(images[:, [channel]])
        assert torch.equal(differences(images)[:, [channel]], alone)


@given(st.integers(1, 3), st.integers(2, 6), st.integers(2, 6), st.integers(0, 99))
def test_weighted_magnitudes_are_the_total_variation(
    channels: int, height: int, width: int, seed: int
) -> None:
    """Eq. 3: a mean over vertical neighbours, and one over horizontal ones."""
    image = draw(seed, 1, channels, height, width)
    plane = image[0].numpy()
    below = np.abs(plane[:, 1:] - plane[:, :-1]).mean()
    beside = np.abs(plane[:, :, 1:] - plane[:, :, :-1]).mean()
    weights = variation_weights((channels, height, width)).double()
    found = (differences(image, orders=1).abs() * weights).sum()
    assert found == pytest.approx(below + beside)


def test_along_a_side_of_one_pixel_nothing_varies() -> None:
    image = draw(0, 1, 3, 1, 5)
    found = (differences(image, orders=1).abs() * variation_weights((3, 1, 5))).sum()
    assert found == pytest.approx(image.diff(dim=3).abs().mean().item())


def mixtures_of(images: Tensor) -> Tensor:
    output_gradients = draw(7, 1, 20, images.shape[1]) - 0.5
    return (output_gradients @ images.flatten(2)).float()


@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 6, 4), (1, 1, 9)], ids=str)
def test_white_differences_have_unit_covariance_and_are_made_of_the_mixtures(
    shape: tuple[int, ...],
) -> None:
    mixtures = mixtures_of(draw(2, 2, 4, *shape))
    white, transform = white_differences(mixtures, 4, shape)
    flat = white.flatten(2)
    covariances = flat @ flat.mT / flat.shape[2]
    torch.testing.assert_close(covariances, torch.eye(4).expand(2, 4, 4), atol=1e-4, rtol=0)
    images = (transform @ mixtures.double()).unflatten(2, shape)
    made = torch.stack([differences(own) for own in images]).float()
    torch.testing.assert_close(white[..., : made.shape[3]], made, atol=1e-4, rtol=1e-3)


def test_one_place_more_has_the_mean_colours_but_they_hardly_count() -> None:
    white, _ = white_differences(mixtures_of(draw(3, 1, 3, 3, 12, 12)), 3, (3, 12, 12))
    assert white[..., -1].square().sum() < 1e-3 * white.square().sum()


def test_pictures_of_one_colour_are_told_by_it() -> None:
    colours = torch.tensor([[0.2, 0.5, 0.7], [0.9, 0.1, 0.3]], dtype=torch.double)
    images = colours[None, :, :, None, None].expand(1, 2, 3, 6, 6)
    white, transform = white_differences(mixtures_of(images), 2, (3, 6, 6))
    assert white.isfinite().all()
    assert transform.isfinite().all()
    assert (white[..., -1].abs() > 10 * white[..., :-1].abs().amax(3)).any(2).all()


SHAPE, NEURONS = (3, 6, 8), 30
COLOUR = torch.tensor([0.2, 0.5, 0.9])[:, None, None].expand(SHAPE).flatten()


def flat_images_draw(count: int, *flat: Tensor) -> tuple[Tensor, Tensor]:
    """Draw derivatives A, Shape (neurons, N), and images X, Shape (N, F), the last ones given."""
    stream = torch.Generator().manual_seed(0)
    images = torch.rand(count, COLOUR.numel(), generator=stream)
    images[count - len(flat) :] = torch.stack(flat) if flat else images[count:]
    return torch.randn(NEURONS, count, generator=stream), images


@pytest.mark.parametrize("image", [COLOUR, torch.full_like(COLOUR, 0.3), torch.zeros_like(COLOUR)])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("scale", [1e-8, 1.0])
def test_the_image_is_what_differences_leave(image: Tensor, count: int, scale: float) -> None:
    output_gradients, images = flat_images_draw(count, image)
    found = find_flat_image(
        scale * output_gradients @ images, scale * output_gradients.sum(1), count, SHAPE
    )
    assert found is not None
    torch.testing.assert_close(found.image, image.double(), atol=1e-5, rtol=0)
    weights = scale * found.row @ output_gradients.double()
    torch.testing.assert_close(weights[-1], torch.ones_like(weights[-1]), atol=1e-4, rtol=0)
    assert weights[:-1].abs().sum() < 1e-4


@pytest.mark.parametrize("flat", [(), (COLOUR, 0.5 * COLOUR)])
def test_none_or_several_are_not_told(flat: tuple[Tensor, ...]) -> None:
    output_gradients, images = flat_images_draw(5, *flat)
    assert find_flat_image(output_gradients @ images, output_gradients.sum(1), 5, SHAPE) is None


def test_noise_and_zeros_hide_it() -> None:
    output_gradients, images = flat_images_draw(5, COLOUR)
    noise = 1e-3 * torch.randn(NEURONS, COLOUR.numel(), generator=torch.Generator().manual_seed(1))
    assert (
        find_flat_image(output_gradients @ images + noise, output_gradients.sum(1), 5, SHAPE)
        is None
    )
    assert (
        find_flat_image(0 * output_gradients @ images, 0 * output_gradients.sum(1), 5, SHAPE)
        is None
    )


def test_its_own_derivatives_are_told_from_others_whatever_their_scale() -> None:
    output_gradients, images = flat_images_draw(5, COLOUR)
    found = find_flat_image(output_gradients @ images, output_gradients.sum(1), 5, SHAPE)
    assert found is not None
    others = torch.randn(4, NEURONS, generator=torch.Generator().manual_seed(2)).double()
    own = 7 * output_gradients[:, -1].double()
    told = found.derivatives(torch.cat([others, own[None]]))
    torch.testing.assert_close(told, output_gradients[:, -1].double(), atol=1e-4, rtol=1e-4)
    assert found.derivatives(others) is None
    assert found.derivatives(-own[None]) is None


def test_what_is_left_are_the_other_images() -> None:
    output_gradients, images = flat_images_draw(5, COLOUR)
    mixture = Mixture(
        (output_gradients @ images)[None].repeat(2, 1, 1),
        output_gradients.sum(1)[None].repeat(2, 1),
    )
    found = find_flat_image(mixture.weight[1], mixture.bias[1], 5, SHAPE)
    assert found is not None
    rest = without(mixture, 1, found, output_gradients[:, -1].double())
    torch.testing.assert_close(
        rest.weight[1], output_gradients[:, :-1] @ images[:-1], atol=1e-4, rtol=1e-4
    )
    torch.testing.assert_close(rest.bias[1], output_gradients[:, :-1].sum(1), atol=1e-4, rtol=1e-4)
    assert torch.equal(rest.weight[0], mixture.weight[0])
    unknown = without(mixture, 1, found, None)
    assert torch.linalg.matrix_rank(unknown.weight[1], rtol=1e-5) == 4
