"""Images from what windows of them show."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn

from gleak.attacks import mkor
from gleak.attacks.mkor import ClassFeatures, GaussianProcess, WindowReader
from gleak.core.registry import parse
from gleak.crafting.mkor import craft_classes, path_gains
from gleak.models.base import ACTIVATIONS, activation_layer
from gleak.models.chain import decompose
from gleak.models.differentiation import sample_losses
from gleak.models.layer_search import features_before

SHAPE = (3, 16, 16)
SMALL = "vgg_small+width=24+hidden=16"
NAIVE, HIDDEN = "mkor+hiding=naive", "mkor+quiet=1"
Secret = dict[str, np.ndarray]
KINDS = ("relu", "leaky_relu", "sigmoid", "tanh")
EXTRAS = ("", "+norm=batch", "+normalise=imagenet")
COMBINATIONS = [
    (activation, ("pooling", "stride")[(i + j) % 2], extra, (i // 2 + j) % 2)
    for i, activation in enumerate(KINDS)
    for j, extra in enumerate(EXTRAS)
]
"""Every pair of choices is among these."""
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
    return network, parse("crafting", crafting).craft_network(network, SHAPE, 4, 0)


@torch.no_grad()
def shown(images: Tensor, model: str, crafting: str = NAIVE) -> tuple[Tensor, Secret]:
    """Intensities of the views of images, and the secret by which they were read."""
    network, secret = crafted(model, crafting)
    return mkor.intensities(features_before(network, "classifier.0")(images), secret), secret


def some_images(count: int = 3, low: float = 0, high: float = 1) -> Tensor:
    random = torch.Generator().manual_seed(0)
    return low + (high - low) * torch.rand(count, *SHAPE, generator=random)


def enlarged_images() -> Tensor:
    """Images of 4 x 4 pixels, enlarged."""
    matrix = mkor.enlargement(4, 16).float()
    small = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    return matrix @ small @ matrix.T


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
    found = mkor._interpolated(sought, rising, levels)
    np.testing.assert_allclose(found, np.interp(sought, rising, levels), atol=1e-9)


def test_beyond_their_ends_curves_go_on_straight() -> None:
    rising, levels = torch.tensor([0.0, 1, 3]), torch.tensor([0, 0.5, 1])
    assert mkor._interpolated(torch.tensor([-2.0, 5]), rising, levels).tolist() == [-1, 1.5]


@pytest.mark.parametrize(("activation", "way", "extra", "hidden"), COMBINATIONS)
def test_greys_are_read_as_what_they_are(
    activation: str, way: str, extra: str, hidden: int
) -> None:
    """Between those the server has looked at, too."""
    crafting = HIDDEN if hidden else NAIVE
    model = f"{SMALL}+activation={activation}+downsampling={way}{extra}"
    greys = torch.tensor([0, 0.234, 0.5, 0.77, 1])[:, None, None, None].expand(-1, *SHAPE)
    found, _ = shown(greys, model, crafting)
    curved = activation in ("sigmoid", "tanh")
    error = (found - greys[:, :1, :1, :1]).abs().max()
    assert error < (0.03 if crafting == HIDDEN else 0.01 if curved else 1e-4)


@pytest.mark.parametrize(("activation", "way", "extra", "flat"), COMBINATIONS)
def test_naive_features_are_read_as_windows_of_the_image(
    activation: str, way: str, extra: str, flat: int
) -> None:
    """Through batch normalisation of either sign; in dark images as in bright ones."""
    scale = 0.25 if flat else 1
    model = f"{SMALL}+activation={activation}+downsampling={way}{extra}"
    for images in (some_images(high=scale), some_images(low=1 - scale)):
        found, secret = shown(images, model)
        torch.testing.assert_close(found, windows(images, secret), atol=2e-3, rtol=0)


def test_bounds_are_those_of_equations_17_and_18() -> None:
    """The least of all windows that a pixel is in."""
    images = some_images(1)
    found, secret = shown(images, SMALL)
    reader = WindowReader(secret, None)
    starts, copies = reader._on_grid(found, reverse=False)
    places, extent = starts.tolist(), int(secret["windows"][1])
    upper = reader._tightest(copies, places[1] - places[0])
    for (i, row), (j, column) in product(enumerate(places), repeat=2):
        covering = [
            images[0, :, top : top + extent, left : left + extent].amax((1, 2))
            for top, left in product(places, repeat=2)
            if top <= row < top + extent and left <= column < left + extent
        ]
        expected = torch.stack(covering).amin(0)
        torch.testing.assert_close(upper[0, :, i, j], expected, atol=1e-5, rtol=0)


@each_way
@pytest.mark.parametrize("resolution", [None, 8])
def test_flat_images_come_out_flat(way: str, resolution: int | None) -> None:
    greys = torch.rand(4, 3, 1, 1, generator=torch.Generator().manual_seed(2)).expand(-1, *SHAPE)
    found, secret = shown(greys, f"{SMALL}+downsampling={way}")
    estimate = WindowReader(secret, resolution).images(found)
    torch.testing.assert_close(estimate, greys, atol=1e-4, rtol=0)


@given(st.integers(0, 2**31), st.floats(0, 1e6), st.integers(0, 2))
def test_images_are_in_range_whatever_is_read(seed: int, size: float, count: int) -> None:
    _, secret = crafted(SMALL)
    views, values = len(secret["channel"]), secret["windows"][2]
    random = torch.Generator().manual_seed(seed)
    noise = size * torch.randn(count, views, values, values, generator=random)
    found = WindowReader(secret, None).images(noise)
    assert found.shape == (count, *SHAPE)
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3])
def test_noise_is_made_less_in_smooth_images(noise: float) -> None:
    found, secret = shown(enlarged_images(), f"{SMALL}+downsampling=stride")
    reader = WindowReader(secret, None)
    noisy = found + noise * torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    clean, estimate = reader.images(found), reader.images(noisy)
    assert (estimate - clean).pow(2).mean().sqrt() < 0.8 * noise


@each_way
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_windows_that_were_not_sent_are_filled_in(way: str, share: float) -> None:
    images = torch.linspace(0.2, 0.8, 16).expand(1, *SHAPE)
    found, secret = shown(images, f"{SMALL}+downsampling={way}")
    lost = torch.rand(found.shape, generator=torch.Generator().manual_seed(0)) < share
    estimate = WindowReader(secret, None).images(found.masked_fill(lost, torch.nan))
    blind = (images - images.mean()).pow(2).mean()
    assert (estimate - images).pow(2).mean() < blind / 4


def test_zeros_that_no_grey_gives_were_not_sent() -> None:
    network, secret = crafted(f"{SMALL}+activation=sigmoid")
    features = features_before(network, "classifier.0")(some_images()).detach()
    lost = torch.rand(features.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    whole, pruned = (mkor.intensities(f, secret) for f in (features, features.masked_fill(lost, 0)))
    values = secret["windows"][2]
    expected = lost.unflatten(1, (-1, values, values))[:, secret["channel"]]
    assert torch.equal(pruned.isnan(), expected)
    assert torch.equal(pruned[~expected], whole[~expected])


def test_zeros_beside_what_black_gives_were_sent() -> None:
    """What differs by rounding from the response that the server has noted."""
    _, secret = crafted(SMALL)
    noted = {**secret, "responses": secret["responses"].copy()}
    noted["responses"][0][secret["reversed"] == 0] = 2e-8
    black = torch.zeros(1, len(secret["channel"]), *secret["responses"].shape[2:])
    assert not mkor.intensities(black.flatten(1), noted)[:, secret["reversed"] == 0].isnan().any()


@given(st.integers(0, 2**31), st.floats(0, 1), st.integers(1, 6))
def test_gaps_are_filled_with_what_lies_between_their_neighbours(
    seed: int, share: float, side: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    grid = torch.rand(2, 3, side, side, generator=random)
    gaps = torch.rand(grid.shape, generator=random) < share
    found = mkor.filled(grid.masked_fill(gaps, torch.nan))
    assert torch.equal(found[~gaps], grid[~gaps])
    for image, colour in np.ndindex(2, 3):
        known = grid[image, colour][~gaps[image, colour]]
        low, high = (known.min(), known.max()) if len(known) else (0.5, 0.5)
        assert (found[image, colour] >= low - 1e-6).all()
        assert (found[image, colour] <= high + 1e-6).all()


grids = st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(1, 4)).map(
    lambda drawn: (torch.arange(drawn[1], 24, drawn[0]), drawn[2])
)


@given(grids, st.sampled_from([1.0, 8.0, 64.0]), st.integers(0, 2**31))
def test_expected_images_agree_with_what_was_read_of_them(
    grid: tuple[Tensor, int], length: float, seed: int
) -> None:
    starts, extent = grid
    pixels = torch.arange(24)
    within = (pixels >= starts[:, None]) & (pixels < starts[:, None] + extent)
    means = within.double() / within.sum(1, keepdim=True)
    truth = torch.randn(2, 24, 24, generator=torch.Generator().manual_seed(seed)).double()
    read = means @ truth.cumsum(1).cumsum(2) @ means.T / 24
    estimate = GaussianProcess(mkor.covariance(24, length, None), starts, extent).expect(read, 1e-9)
    torch.testing.assert_close(means @ estimate @ means.T, read, atol=0.01, rtol=0.01)


@pytest.mark.parametrize("gap", [2, 4, 8])
def test_between_single_pixels_lie_straight_lines(gap: int) -> None:
    starts = torch.arange(0, 33, gap)
    ramp = 0.2 + 0.01 * (torch.arange(33)[:, None] + torch.arange(33)).double()
    read = ramp[starts][:, starts][None]
    estimate = GaussianProcess(mkor.covariance(33, 64, None), starts, 1).expect(read, 1e-9)
    torch.testing.assert_close(estimate[0], ramp, atol=0.01, rtol=0)


@pytest.mark.parametrize("doubt", [0.01, 1, 100])
def test_expected_images_are_those_of_a_gaussian_process(doubt: float) -> None:
    """Written down as one system of equations for all windows."""
    starts, values = torch.arange(0, 6, 2), some_images().double()[0, :1, :3, :3]
    pixels = mkor.covariance(6, 4, None)
    means = torch.eye(6).double()[starts]
    seen = torch.kron(means @ pixels @ means.T, means @ pixels @ means.T)
    weights = torch.linalg.solve(seen + doubt * torch.eye(9), values.flatten())
    expected = torch.kron(pixels @ means.T, pixels @ means.T) @ weights
    torch.testing.assert_close(
        GaussianProcess(pixels, starts, 1).expect(values, doubt).flatten(), expected
    )


@pytest.mark.parametrize("resolution", [None, 5])
def test_covariances_fall_with_the_distance(resolution: int | None) -> None:
    found = mkor.covariance(16, 4.0, resolution)
    torch.testing.assert_close(found, found.T)
    assert torch.linalg.eigvalsh(found).min() > -1e-12
    assert (found[0].diff() <= 1e-9).all()
    if resolution is None:
        torch.testing.assert_close(found[0], torch.exp(-torch.arange(16).double() / 4))


@pytest.mark.parametrize(("small", "large"), [(4, 16), (5, 16), (8, 12), (16, 16)])
def test_enlargement_is_that_of_pictures(small: int, large: int) -> None:
    """As datasets do it: bilinear, by another library."""
    values = torch.rand(small, small, generator=torch.Generator().manual_seed(0))
    picture = Image.fromarray(values.numpy()).resize((large, large), Image.Resampling.BILINEAR)
    matrix = mkor.enlargement(small, large).float()
    torch.testing.assert_close(matrix @ values @ matrix.T, torch.from_numpy(np.array(picture)))


@each_way
def test_an_enlarged_image_is_found_again_if_its_size_is_known(way: str) -> None:
    """Single pixels at 8 x 8 of 16 x 16 lose nothing of 4 x 4 values."""
    images = enlarged_images()
    found, secret = shown(images, f"{SMALL}+downsampling={way}")
    errors = [
        (WindowReader(secret, resolution).images(found) - images).pow(2).mean().sqrt()
        for resolution in (4, None)
    ]
    assert errors[0] < errors[1]
    assert way == "pooling" or errors[0] < 5e-3


CLASSES, FEATURES, WIDTH = 4, 12, 40
REPEATED = (3, 0, 2, 1, 3, 2, 3)
each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
each_depth = pytest.mark.parametrize("layers", [2, 3])


@dataclass
class Batch:
    """A crafted network of dense layers, a batch of features, and what the server knows."""

    network: nn.Sequential
    secret: dict[str, np.ndarray]
    features: Tensor
    labels: Tensor

    def read(self, loss: str) -> ClassFeatures:
        """Recover the features of each class from the gradient."""
        targets = nn.functional.one_hot(self.labels, CLASSES).float()
        mean = sample_losses(loss, self.network(self.features), targets).mean()
        first = self.network[0]
        gradient = torch.autograd.grad(mean, [first.weight, first.bias])
        return mkor.read_classes(*gradient, self.secret, len(self.labels), loss)

    @property
    def counts(self) -> list[int]:
        """Number of samples of each class."""
        return self.labels.bincount(minlength=CLASSES).tolist()

    def errors(self, found: ClassFeatures) -> dict[int, float]:
        """Return the largest error of the mean of each class that was found."""
        means = {label: self.features[self.labels == label].mean(0) for label in range(CLASSES)}
        return {
            label: float((found.means[label] - mean).abs().max())
            for label, mean in means.items()
            if found.counts[label]
        }


def batch(
    crafting: str = "mkor",
    activation: str = "relu",
    layers: int = 2,
    labels: tuple[int, ...] = REPEATED,
    sink: int | None = None,
    dropout: float = 0.0,
) -> Batch:
    torch.manual_seed(layers)
    sizes = pairwise([FEATURES, *[WIDTH] * (layers - 1), CLASSES])
    *parts, _, _ = (
        part
        for pair in sizes
        for part in (nn.Linear(*pair), activation_layer(activation), nn.Dropout(dropout))
    )
    network = nn.Sequential(*parts).eval()
    made_up, spec = torch.rand(64, FEATURES), parse("crafting", crafting)
    random = torch.Generator().manual_seed(0)
    paths = craft_classes(decompose(network).dense, made_up, spec, random)
    if sink is not None:
        network[-1].bias.data[sink] += 12
    secret = {
        "rows": paths.rows.numpy(),
        "gains": path_gains(decompose(network).dense, made_up, paths.rows).numpy(),
        "pairs": np.array([int(paths.pairs)]),
        "kept": np.array([(1 - dropout) ** (layers - 1)]),
        "chances": network(made_up).softmax(1).mean(0).detach().numpy(),
    }
    return Batch(network, secret, torch.rand(len(labels), FEATURES), torch.tensor(labels))


@each_activation
@each_depth
@pytest.mark.parametrize(
    "crafting", ["mkor+noise=0", "mkor", "mkor+alpha=-2.5", "mkor+hiding=naive", "mkor+paths=3"]
)
def test_raw_likelihoods_tell_the_mean_of_every_class_and_its_count(
    activation: str, layers: int, crafting: str
) -> None:
    """Behind curved activations samples of one class do not weigh exactly the same."""
    held = batch(crafting, activation, layers)
    found = held.read("nll_raw")
    assert found.counts.tolist() == held.counts
    errors = held.errors(found)
    exact = 1e-5 if crafting in ("mkor+noise=0", "mkor+hiding=naive") else 2e-3
    assert max(errors[0], errors[1]) < exact
    assert max(errors.values()) < (0.1 if activation in ("sigmoid", "tanh") else exact)


@each_activation
@each_depth
@pytest.mark.parametrize("labels", [(0, 1, 2, 3), REPEATED])
@pytest.mark.parametrize("sink", [0, 3])
def test_with_a_sink_cross_entropy_tells_all_other_classes(
    activation: str, layers: int, labels: tuple[int, ...], sink: int
) -> None:
    held = batch("mkor", activation, layers, labels, sink)
    found = held.read("cross_entropy")
    expected = held.counts
    expected[sink] = 0
    assert found.counts.tolist() == expected
    assert max(held.errors(found).values()) < (0.1 if activation in ("sigmoid", "tanh") else 5e-3)


@each_activation
@each_depth
def test_a_class_that_is_absent_stands_in_for_a_sink(activation: str, layers: int) -> None:
    """It shows the batch's mean; what the softmax added is less well known than with a sink."""
    held = batch("mkor", activation, layers, labels=(0, 1, 1, 3, 3, 3))
    found = held.read("cross_entropy")
    assert found.counts.tolist() == held.counts
    errors = held.errors(found)
    assert max(errors.values()) < 0.15
    means = found.means[[*errors]]
    assert ((means - means.mean(0)).abs().amax(1) > 0.2).all()


@pytest.mark.parametrize("labels", [(2,), (0, 3), (0, 1, 3)])
def test_cross_entropy_hides_small_batches_least(labels: tuple[int, ...]) -> None:
    """However little of the softmax goes to the classes that are absent."""
    held = batch("mkor", labels=labels)
    found = held.read("cross_entropy")
    assert found.counts.tolist() == held.counts
    assert max(held.errors(found).values()) < 0.1


@each_activation
def test_one_sample_of_each_class_and_no_sink_tell_nothing(activation: str) -> None:
    held = batch("mkor", activation, labels=(0, 1, 2, 3))
    assert held.read("cross_entropy").counts.tolist() == [0] * CLASSES
    assert held.read("nll_raw").counts.tolist() == [1] * CLASSES


def test_where_neurons_are_dropped_parallel_paths_find_more_classes() -> None:
    """A class with one sample is read exactly, if any of its paths is left."""
    shares = []
    for paths in (1, 4):
        held = batch(f"mkor+noise=0+paths={paths}", labels=(0, 1, 2, 3), dropout=0.5)
        held.network.train()
        torch.manual_seed(0)
        found = [held.read("nll_raw") for _ in range(50)]
        assert max(error for one in found for error in held.errors(one).values()) < 1e-4
        shares.append(float(torch.stack([one.counts > 0 for one in found]).float().mean()))
    assert shares[0] == pytest.approx(0.5, abs=0.1)
    assert shares[1] > 0.75


@pytest.mark.parametrize("loss", ["nll_raw", "cross_entropy"])
@pytest.mark.parametrize("level", [0.0, 1.0, 1e12])
def test_a_gradient_that_says_nothing_gives_counts_all_the_same(loss: str, level: float) -> None:
    held = batch()
    random = torch.Generator().manual_seed(0)
    weight = level * torch.randn(WIDTH, FEATURES, generator=random)
    bias = level * torch.randn(WIDTH, generator=random)
    found = mkor.read_classes(weight, bias, held.secret, 5, loss)
    assert found.means.isfinite().all()
    assert (found.counts >= 0).all()
    assert found.counts.sum() <= 5
    assert level or not found.counts.any()


@given(
    st.lists(
        st.floats(allow_nan=True, allow_infinity=True, width=32) | st.floats(-2, 9, width=32),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 12),
)
def test_whole_counts_never_exceed_the_batch(counts: list[float], size: int) -> None:
    found = mkor.whole_counts(torch.tensor(counts), size)
    assert found.dtype == torch.long
    assert (found >= 0).all()
    assert found.sum() <= size
    assert not found[~(torch.tensor(counts) >= 0.5)].any()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12).filter(any), st.integers(0, 2**31))
def test_counts_that_are_nearly_whole_are_rounded(counts: list[int], seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    noise = 0.49 * (2 * torch.rand(len(counts), generator=random) - 1)
    assert mkor.whole_counts(torch.tensor(counts) + noise, sum(counts)).tolist() == counts


def test_the_least_certain_samples_are_given_up() -> None:
    assert mkor.whole_counts(torch.tensor([0.6, 0.9, 1.7]), 3).tolist() == [0, 1, 2]
    assert mkor.whole_counts(torch.tensor([0.6, 0.9, 1.7]), 2).tolist() in ([0, 1, 1], [0, 0, 2])
