"""Images from what windows of them show."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn

from gleak.attacks.window_reading import (
    WindowReader,
    _interpolated,
    enlargement,
    intensities,
    reading_matrix,
)
from gleak.crafting.mkor_network import craft_network
from gleak.models.embedding import features_before
from gleak.registry import parse

SHAPE = (3, 16, 16)
SMALL = "vgg_small+width=24+hidden=16"
NAIVE, HIDDEN = "mkor+hiding=naive", "mkor"
Secret = dict[str, np.ndarray]
ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "tanh")
EXTRAS = ("", "+norm=batch", "+normalise=imagenet")
each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
each_way = pytest.mark.parametrize("way", ["pooling", "stride"])


@cache
def crafted(model: str, crafting: str = NAIVE) -> tuple[nn.Module, Secret]:
    """A crafted network, whose batch normalisation is as if trained, and its secret."""
    torch.manual_seed(0)
    network = parse("model", model).build(SHAPE, 4).eval()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean, std=0.3)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias, std=0.3)
    return network, craft_network(network, SHAPE, parse("crafting", crafting), 0)


@torch.no_grad()
def shown(images: Tensor, model: str, crafting: str = NAIVE) -> tuple[Tensor, Secret]:
    """Intensities of the views of images, and the secret by which they were read."""
    network, secret = crafted(model, crafting)
    return intensities(features_before(network, "classifier.0")(images), secret), secret


def some_images(count: int = 3, low: float = 0, high: float = 1, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(count, *SHAPE, generator=random)


def windows(images: Tensor, secret: Secret) -> Tensor:
    """What the secret says that is shown: the darkest pixel where reversed, else the brightest."""
    scale, extent, values, _ = secret["windows"]
    expected = torch.empty(len(images), len(secret["channel"]), values, values)
    for view, colour in enumerate(secret["colour"]):
        extreme = torch.amin if secret["reversed"][view] else torch.amax
        for i, j in np.ndindex(values, values):
            top, left = secret["row"][view] + scale * i, secret["column"][view] + scale * j
            window = images[:, colour, top : top + extent, left : left + extent]
            expected[:, view, i, j] = extreme(window, (1, 2))
    return expected


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.floats(-3, 3),
    st.lists(st.floats(0, 1), min_size=1, max_size=9),
)
def test_curves_are_read_as_numpy_interpolates(
    rises: list[int], start: float, places: list[float]
) -> None:
    rising = start + torch.tensor([0, *rises]).cumsum(0).double()
    levels = torch.linspace(0, 1, len(rising)).double()
    sought = rising[0] + torch.tensor(places).double() * (rising[-1] - rising[0])
    found = _interpolated(sought, rising, levels)
    np.testing.assert_allclose(found, np.interp(sought, rising, levels), atol=1e-9)


def test_beyond_their_ends_curves_go_on_straight() -> None:
    rising, levels = torch.tensor([0.0, 1, 3]), torch.tensor([0, 0.5, 1])
    found = _interpolated(torch.tensor([-2.0, 5]), rising, levels)
    assert found.tolist() == [-1, 1.5]


@each_activation
@each_way
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("crafting", [NAIVE, HIDDEN])
def test_greys_are_read_as_what_they_are(
    activation: str, way: str, extra: str, crafting: str
) -> None:
    """Between those the server has looked at, too."""
    model = f"{SMALL}+activation={activation}+downsampling={way}{extra}"
    greys = torch.tensor([0, 0.234, 0.5, 0.77, 1])[:, None, None, None].expand(-1, *SHAPE)
    found, _ = shown(greys, model, crafting)
    curved = activation in ("sigmoid", "tanh")
    error = (found - greys[:, :1, :1, :1]).abs().max()
    assert error < (0.01 if curved or crafting == HIDDEN else 1e-4)


@each_activation
@each_way
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("scale", [1, 0.25])
def test_naive_features_are_read_as_windows_of_the_image(
    activation: str, way: str, extra: str, scale: float
) -> None:
    """Through batch normalisation of either sign; in dark images as in bright ones."""
    model = f"{SMALL}+activation={activation}+downsampling={way}{extra}"
    for images in (some_images(high=scale), some_images(low=1 - scale)):
        found, secret = shown(images, model)
        torch.testing.assert_close(found, windows(images, secret), atol=2e-3, rtol=0)


@pytest.mark.parametrize("beta", [0.02, 5])
def test_read_windows_do_not_depend_on_the_scale_of_features(beta: float) -> None:
    images = some_images()
    found, secret = shown(images, SMALL, f"{NAIVE}+beta={beta}")
    torch.testing.assert_close(found, windows(images, secret), atol=1e-4, rtol=0)


@each_activation
@pytest.mark.parametrize(("crafting", "slack"), [(NAIVE, 2e-3), (HIDDEN, 0.1)])
def test_images_lie_between_the_tightest_bounds(
    activation: str, crafting: str, slack: float
) -> None:
    for images in (some_images(), some_images(high=0.3), some_images(low=0.7)):
        found, secret = shown(images, f"{SMALL}+activation={activation}", crafting)
        reader = WindowReader(secret, None)
        starts, copies = reader._on_grid(found, reverse=False)
        _, reverses = reader._on_grid(found, reverse=True)
        step = int(starts[1] - starts[0])
        assert starts.tolist() == [*range(0, 16, step)]
        cells = images.unfold(2, step, step).unfold(3, step, step)
        assert (cells.amax((4, 5)) <= reader._tightest(copies, step) + slack).all()
        assert (cells.amin((4, 5)) >= -reader._tightest(-reverses, step) - slack).all()


def test_bounds_are_those_of_equations_17_and_18() -> None:
    """The least of all windows that a pixel is in."""
    images = some_images(1)
    found, secret = shown(images, SMALL)
    reader = WindowReader(secret, None)
    starts, copies = reader._on_grid(found, reverse=False)
    step, extent = int(starts[1] - starts[0]), int(secret["windows"][1])
    upper = reader._tightest(copies, step)
    for i, row in enumerate(starts.tolist()):
        for j, column in enumerate(starts.tolist()):
            covering = [
                images[0, :, top : top + extent, left : left + extent].amax((1, 2))
                for top in starts.tolist()
                for left in starts.tolist()
                if top <= row < top + extent and left <= column < left + extent
            ]
            expected = torch.stack(covering).amin(0)
            torch.testing.assert_close(upper[0, :, i, j], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("way", ["pooling", "stride"])
@pytest.mark.parametrize("resolution", [None, 8])
def test_flat_images_come_out_flat(way: str, resolution: int | None) -> None:
    greys = torch.rand(4, 3, 1, 1, generator=torch.Generator().manual_seed(2)).expand(-1, *SHAPE)
    found, secret = shown(greys, f"{SMALL}+downsampling={way}")
    torch.testing.assert_close(
        WindowReader(secret, resolution).images(found), greys, atol=1e-4, rtol=0
    )


def test_edges_are_where_they_were() -> None:
    """Left black, right white: bounds meet everywhere but beside the edge."""
    images = torch.zeros(1, *SHAPE)
    images[..., 8:] = 1
    found, secret = shown(images, SMALL)
    estimate = WindowReader(secret, None).images(found)
    assert (estimate[..., :6] < 0.1).all()
    assert (estimate[..., 10:] > 0.9).all()


@given(st.integers(0, 2**31), st.floats(0, 1e6))
def test_images_are_in_range_whatever_is_read(seed: int, size: float) -> None:
    _, secret = crafted(SMALL)
    views, values = len(secret["channel"]), secret["windows"][2]
    random = torch.Generator().manual_seed(seed)
    noise = size * torch.randn(2, views, values, values, generator=random)
    found = WindowReader(secret, None).images(noise)
    assert found.shape == (2, *SHAPE)
    assert found.min() >= 0
    assert found.max() <= 1


def test_noise_is_not_made_larger_than_it_is() -> None:
    images = some_images(high=0.5)
    network, secret = crafted(SMALL)
    features = features_before(network, "classifier.0")(images).detach()
    noisy = features + 1e-3 * torch.randn(
        features.shape, generator=torch.Generator().manual_seed(0)
    )
    reader = WindowReader(secret, None)
    found = [reader.images(intensities(each, secret)) for each in (features, noisy)]
    assert 0 < (found[0] - found[1]).abs().max() < 0.05


@each_way
def test_no_images_are_read_as_none(way: str) -> None:
    found, secret = shown(torch.zeros(0, *SHAPE), f"{SMALL}+downsampling={way}")
    assert WindowReader(secret, None).images(found).shape == (0, *SHAPE)


grids = st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(1, 4)).map(
    lambda drawn: (torch.arange(drawn[1], 24, drawn[0]), drawn[2])
)


@given(grids, st.integers(0, 2**31))
def test_estimates_agree_with_what_was_read(grid: tuple[Tensor, int], seed: int) -> None:
    starts, extent = grid
    pixels = torch.arange(24)
    within = (pixels >= starts[:, None]) & (pixels < starts[:, None] + extent)
    means = within.double() / within.sum(1, keepdim=True)
    truth = torch.rand(24, generator=torch.Generator().manual_seed(seed)).double().cumsum(0) / 24
    read = means @ truth
    estimate = reading_matrix(24, starts, extent, None) @ read
    torch.testing.assert_close(means @ estimate, read, atol=0.01, rtol=0)


@pytest.mark.parametrize("gap", [2, 4, 8])
def test_between_single_pixels_lies_a_straight_line(gap: int) -> None:
    starts = torch.arange(0, 33, gap)
    line = 0.2 + 0.02 * torch.arange(33).double()
    estimate = reading_matrix(33, starts, 1, None) @ line[starts]
    torch.testing.assert_close(estimate, line, atol=5e-3, rtol=0)


def test_all_pixels_are_read_as_they_are() -> None:
    matrix = reading_matrix(16, torch.arange(16), 1, None)
    torch.testing.assert_close(matrix, torch.eye(16).double(), atol=2e-3, rtol=0)


@pytest.mark.parametrize(("small", "large"), [(4, 16), (5, 16), (8, 12), (16, 16)])
def test_enlargement_is_that_of_pictures(small: int, large: int) -> None:
    """As datasets do it: bilinear, by another library."""
    values = torch.rand(small, small, generator=torch.Generator().manual_seed(0))
    picture = Image.fromarray(values.numpy()).resize((large, large), Image.Resampling.BILINEAR)
    matrix = enlargement(small, large).float()
    torch.testing.assert_close(matrix @ values @ matrix.T, torch.from_numpy(np.array(picture)))


@each_way
def test_an_enlarged_image_is_found_again_if_its_size_is_known(way: str) -> None:
    """Windows of 2 pixels at 4 x 4 of 16 x 16; nothing is lost of 4 x 4 smooth values."""
    matrix = enlargement(4, 16).float()
    images = matrix @ torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(0)) @ matrix.T
    found, secret = shown(images, f"{SMALL}+downsampling={way}")
    errors = [
        (WindowReader(secret, resolution).images(found) - images).pow(2).mean().sqrt()
        for resolution in (4, None)
    ]
    assert errors[0] < 0.8 * errors[1]
    if way == "stride":
        assert errors[0] < 5e-3
