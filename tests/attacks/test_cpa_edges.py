"""Differences of images, and images of one colour in mixtures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gleak.attacks.cpa_edges import (
    differences,
    find_flat_image,
    find_flat_images,
    white_differences,
    without,
)
from gleak.attacks.unmixing.mixtures import Mixture
from gleak.core.registry import parse
from tests.attacks.cases import Make, holding, psnr

EDGES = parse("attack", "cpa_edges")
BLIND = parse("attack", "blind")


@pytest.mark.parametrize(
    "client",
    [
        "fedsgd+batch_size=4+victims=2",
        "fedsgd+batch_size=8+victims=2",
        "fedavg+batch_size=6+victims=2+local_steps=3+local_lr=0.1",
        "fedavg+batch_size=6+victims=2+local_steps=3+local_lr=0.1+mini_batch=2+sends=weights",
    ],
)
def test_batches_of_photographs_come_out(client: str, make_photo_case: Make) -> None:
    seen, truth = make_photo_case(EDGES, client)
    found = EDGES.reconstruct(seen)
    blind = BLIND.reconstruct(make_photo_case(BLIND, client)[0])
    reached = psnr(truth.inputs, found.inputs)
    assert (reached.mean(1) > psnr(truth.inputs, blind.inputs).mean(1) + 12).all()
    assert np.median(reached) > 28
    assert found.converged.all()


BATCH_OF_8 = "fedsgd+batch_size=8+victims=2"
COLOURS = {"grey": (0.7, 0.7, 0.7), "black": (0, 0, 0), "a colour": (0.1, 0.5, 0.8)}


@pytest.mark.parametrize("colour", COLOURS.values(), ids=COLOURS)
def test_an_image_of_one_colour_is_found_and_harms_no_other(
    colour: tuple[float, float, float], make_photo_case: Make
) -> None:
    seen, truth = make_photo_case(EDGES, BATCH_OF_8)
    inputs = truth.inputs.copy()
    inputs[1, 3] = np.array(colour)[:, None, None]
    found = EDGES.reconstruct(holding(seen, inputs, truth.labels))
    reached = psnr(inputs, found.inputs)
    others = np.delete(np.arange(8), 3)
    alone = psnr(truth.inputs, EDGES.reconstruct(seen).inputs)
    assert reached[1, 3] > 80
    assert (reached[1, others] > alone[1, others] - 6).all()
    assert np.median(reached[1, others]) > 28
    assert found.converged.all()


def test_of_local_steps_the_image_of_one_colour_is_found_too(make_photo_case: Make) -> None:
    client = "fedavg+batch_size=6+victims=2+local_steps=3+local_lr=1"
    seen, truth = make_photo_case(EDGES, client)
    inputs = truth.inputs.copy()
    inputs[:, 2] = 0.7
    found = EDGES.reconstruct(holding(seen, inputs, truth.labels, client))
    found.validate()
    assert (psnr(inputs, found.inputs)[:, 2] > 40).all()


def test_of_two_images_that_are_the_same_one_is_found(make_photo_case: Make) -> None:
    seen, truth = make_photo_case(EDGES, BATCH_OF_8)
    inputs = truth.inputs.copy()
    inputs[1, 5] = inputs[1, 2]
    found = EDGES.reconstruct(holding(seen, inputs, truth.labels))
    reached = psnr(inputs, found.inputs)[1]
    alone = psnr(truth.inputs, EDGES.reconstruct(seen).inputs)[1]
    others = np.delete(np.arange(8), [2, 5])
    assert (reached[others] > alone[others] - 6).all()
    assert max(reached[2], reached[5]) > 18
    assert (found.inputs == 0.5).all((2, 3, 4)).sum(1).tolist() == [0, 1]
    assert found.converged.tolist() == [True, False]


def test_where_all_images_differ_nothing_is_taken_away(make_photo_case: Make) -> None:
    for client in (BATCH_OF_8, "fedavg+batch_size=6+victims=2+local_steps=3+local_lr=0.1"):
        seen, _ = make_photo_case(EDGES, client)
        assert find_flat_images(seen, EDGES.mixture(seen)) == {}


def draw(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


@pytest.mark.parametrize(
    "shape", [(1, 5, 7), (3, 6, 4), (3, 2, 2), (2, 1, 5), (1, 4, 1), (1, 1, 1)], ids=str
)
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
    weight, bias = output_gradients @ images, output_gradients.sum(1)
    noise = 1e-3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    assert find_flat_image(weight + noise, bias, 5, SHAPE) is None
    assert find_flat_image(0 * weight, 0 * bias, 5, SHAPE) is None


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
    weight, bias = output_gradients @ images, output_gradients.sum(1)
    mixture = Mixture(weight.repeat(2, 1, 1), bias.repeat(2, 1))
    found = find_flat_image(weight, bias, 5, SHAPE)
    assert found is not None
    rest = without(mixture, 1, found, output_gradients[:, -1].double())
    close = {"atol": 1e-4, "rtol": 1e-4}
    torch.testing.assert_close(rest.weight[1], output_gradients[:, :-1] @ images[:-1], **close)
    torch.testing.assert_close(rest.bias[1], output_gradients[:, :-1].sum(1), **close)
    assert torch.equal(rest.weight[0], weight)
    unknown = without(mixture, 1, found, None)
    assert torch.linalg.matrix_rank(unknown.weight[1], rtol=1e-5) == 4
