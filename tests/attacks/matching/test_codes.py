"""Codes of samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from gleak.attacks.matching.codes import BicubicCoder, Whitened
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.problem import CodedProblem
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models.layers import Normalisation

Make = Callable[..., Any]


@pytest.mark.parametrize("scale", [2, 4])
def test_smooth_images_survive_their_code(scale: int):
    """Cubic interpolation reproduces a linear gradient of grey exactly, except at the border."""
    rows, columns = torch.meshgrid(
        torch.linspace(0, 1, 16), torch.linspace(0, 1, 24), indexing="ij"
    )
    image = (0.5 * rows + 0.5 * columns).expand(2, 3, 16, 24)
    coder = BicubicCoder.of(scale, (3, 16, 24), image)
    codes = coder.encode(image)
    assert codes.shape == (2, 3 * 16 * 24 // scale**2)
    inner = (..., slice(2 * scale, -2 * scale), slice(2 * scale, -2 * scale))
    torch.testing.assert_close(coder.decode(codes)[inner], image[inner], atol=1e-2, rtol=0)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("scale", "height", "width"), [(2, 8, 8), (4, 12, 20), (4, 28, 28), (4, 64, 32), (3, 21, 9)]
)
def test_matrices_interpolate_as_torch_does(
    scale: int, height: int, width: int, precision: torch.dtype
):
    drawn = torch.rand(5, 3, height, width, generator=torch.Generator().manual_seed(0))
    images = drawn.to(precision)
    coder = BicubicCoder.of(scale, (3, height, width), images)
    cubic = partial(functional.interpolate, mode="bicubic", align_corners=False)
    small = cubic(images, size=(height // scale, width // scale), antialias=True)
    codes = coder.encode(images)
    rounding = {"atol": 16 * torch.finfo(precision).eps, "rtol": 0}
    torch.testing.assert_close(codes, small.flatten(1), **rounding)
    large = cubic(small, size=(height, width))
    torch.testing.assert_close(coder.decode(small.flatten(1)), large, **rounding)


@pytest.mark.parametrize(("scale", "height", "width"), [(4, 28, 28), (3, 21, 9)])
def test_the_code_of_an_image_does_not_depend_on_others(scale: int, height: int, width: int):
    images = torch.rand(7, 3, height, width, generator=torch.Generator().manual_seed(0))
    coder = BicubicCoder.of(scale, (3, height, width), images)

    def derivative(codes: torch.Tensor) -> torch.Tensor:
        values = codes.clone().requires_grad_()
        coder.decode(values).square().sum().backward()
        return values.grad

    codes = coder.encode(images)
    for number, alone in enumerate(images.split(1)):
        row = slice(number, number + 1)
        assert torch.equal(coder.encode(alone.clone()), codes[row])
        assert torch.equal(coder.decode(codes[row].clone()), coder.decode(codes)[row])
        assert torch.equal(derivative(codes[row]), derivative(codes)[row])


class Interpolations(TorchDispatchMode):
    """Counts interpolations, whose derivatives add in random order on a GPU."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "upsample" in str(func)
        return func(*args, **(kwargs or {}))


def test_a_search_of_small_images_interpolates_by_products_alone(encoded: Make):
    problem = encoded("bicubic+scale=2")
    points = torch.rand(3, problem.unknowns)
    with Interpolations() as found:
        problem.evaluate(points)
    assert found.count == 0


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("photos+size=18", "divisible by 4, and images of photos.size=18 have 18 x 18"),
        ("breast_cancer", "encodes images only"),
    ],
)
def test_what_has_no_such_code_is_refused(dataset: str, message: str):
    with pytest.raises(IncompatibleError, match=message):
        parse("code", "bicubic").check(parse("dataset", dataset))


NORMALISING = "vgg_small+width=8+hidden=24+normalise=cifar10"


@pytest.fixture
def encoded(make_observation: Make, make_parts: Make) -> Callable[[str], CodedProblem]:
    def make(code: str) -> CodedProblem:
        observation, _, _ = make_observation(NORMALISING)
        whole = GradientMatching.of(observation, make_parts())
        return CodedProblem.of(whole, parse("code", code).coder(observation))

    return make


def test_normalised_values_are_those_behind_the_networks_own_layer(
    encoded: Make, make_observation: Make
):
    network = make_observation(NORMALISING)[0].model
    (layer,) = (one for one in network.modules() if isinstance(one, Normalisation))
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(encoded("normalised").point(images).view(images.shape), layer(images))


@pytest.mark.parametrize("code", ["normalised", "bicubic+scale=2"])
def test_codes_are_clipped_where_images_are_black_and_white(code: str, encoded: Make):
    problem = encoded(code)
    beyond = torch.tensor([-1.0, 2.0]).view(2, 1, 1, 1).expand(2, 3, 8, 8)
    points = problem.point(beyond)[None]
    problem.clip(points)
    torch.testing.assert_close(problem.inputs(points)[0], beyond.clamp(0, 1))


def test_a_network_that_does_not_normalise_is_refused_before_it_is_attacked():
    attack = parse("attack", "invertgrad+code=normalised")
    network = parse("model", "lenet+width=3").build((3, 8, 8), 4).eval()
    with pytest.raises(IncompatibleError, match="needs a network that normalises its input"):
        attack.check_network(network, (3, 8, 8), 4, parse("client", "fedsgd"))


@pytest.mark.parametrize("victims", [1, 3])
def test_whitened_images_are_recovered_and_unit_codes_have_the_spread_of_images(
    victims: int, make_observation: Make
):
    seen, images, _ = make_observation(victims=victims)
    coder = Whitened().coder(seen)
    codes = coder.encode(images.flatten(0, 1))
    torch.testing.assert_close(coder.decode(codes), images.flatten(0, 1), atol=1e-5, rtol=0)
    unit = torch.eye(codes.shape[1])
    lengths = (coder.decode(unit) - coder.decode(torch.zeros_like(unit))).flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, coder.prior.variances.sqrt())


def test_whitened_codes_do_not_depend_on_other_images(make_observation: Make):
    seen, images, _ = make_observation(victims=5)
    coder, images = Whitened().coder(seen), images.flatten(0, 1)
    codes = coder.encode(images)
    for row in range(len(images)):
        assert torch.equal(coder.encode(images[row : row + 1])[0], codes[row])
        assert torch.equal(coder.decode(codes[row : row + 1])[0], coder.decode(codes)[row])


def test_tables_are_not_whitened(make_observation: Make):
    assert Whitened().coder(make_observation("mlp+hidden=5")[0]) is None
