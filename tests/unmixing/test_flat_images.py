"""Images of one colour in mixtures."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gleak.unmixing.flat_images import find_flat_image, without
from gleak.unmixing.mixtures import Mixture

SHAPE, NEURONS = (3, 6, 8), 30
COLOUR = torch.tensor([0.2, 0.5, 0.9])[:, None, None].expand(SHAPE).flatten()


def draw(count: int, *flat: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives A, Shape (neurons, N), and images X, Shape (N, F), the last ones as given."""
    stream = torch.Generator().manual_seed(0)
    images = torch.rand(count, COLOUR.numel(), generator=stream)
    images[count - len(flat) :] = torch.stack(flat) if flat else images[count:]
    return torch.randn(NEURONS, count, generator=stream), images


@pytest.mark.parametrize("image", [COLOUR, torch.full_like(COLOUR, 0.3), torch.zeros_like(COLOUR)])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("scale", [1e-8, 1.0])
def test_the_image_is_what_differences_leave(image: Tensor, count: int, scale: float) -> None:
    output_gradients, images = draw(count, image)
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
    output_gradients, images = draw(5, *flat)
    assert find_flat_image(output_gradients @ images, output_gradients.sum(1), 5, SHAPE) is None


def test_noise_and_zeros_hide_it() -> None:
    output_gradients, images = draw(5, COLOUR)
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
    output_gradients, images = draw(5, COLOUR)
    found = find_flat_image(output_gradients @ images, output_gradients.sum(1), 5, SHAPE)
    assert found is not None
    others = torch.randn(4, NEURONS, generator=torch.Generator().manual_seed(2)).double()
    own = 7 * output_gradients[:, -1].double()
    told = found.derivatives(torch.cat([others, own[None]]))
    torch.testing.assert_close(told, output_gradients[:, -1].double(), atol=1e-4, rtol=1e-4)
    assert found.derivatives(others) is None
    assert found.derivatives(-own[None]) is None


def test_what_is_left_are_the_other_images() -> None:
    output_gradients, images = draw(5, COLOUR)
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
