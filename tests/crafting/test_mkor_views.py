"""Planned views, compared with those of a network crafted by the plan."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.crafting.mkor import synthetic_images
from gleak.crafting.mkor_views import Layout, craft_convolutions, plan_views, view_arrays
from gleak.models.chain import Chain, decompose
from gleak.models.layer_search import features_before

NAIVE = {"naive": True, "beta": 1, "noise": 0, "quiet": 0}
POOLS = {"max": nn.MaxPool2d, "mean": nn.AvgPool2d}


def convolution(
    outputs: int = 32, inputs: int = 32, kernel: int = 3, stride: int = 1, padded: bool = True
) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2 if padded else 0)


def planned(
    *layers: nn.Module, shape: tuple[int, ...] = (1, 16, 16), directions: int | None = None
) -> Layout:
    return plan_views(decompose(nn.Sequential(*layers)).convolutions, shape, directions)


@st.composite
def networks(draw: st.DrawFn) -> tuple[nn.Sequential, str, int]:
    """Convolutions that shrink images in one way, which way, and a side that is large enough.

    Before max-pooling comes a convolution, as in VGG: beside an image its reverse is not 0. Behind
    a convolution without padding there are only such, and pooling leaves no pixel out before other
    pooling: zeros beside what is left would hide pixels.
    """
    way = draw(st.sampled_from(["max", "mean", "stride"]))
    shrinks = draw(st.lists(st.booleans(), min_size=1, max_size=4).filter(any))
    layers: list[nn.Module] = [convolution(inputs=1)] if way == "max" else []
    padded = draw(st.integers(0, len(shrinks)))
    for number, shrinking in enumerate(shrinks):
        layer = convolution(
            inputs=32 if layers else 1,
            kernel=draw(st.sampled_from([3, 5])),
            stride=2 if shrinking and way == "stride" else 1,
            padded=number < padded,
        )
        layers += [layer, nn.ReLU()]
        layers += [POOLS[way](2)] if shrinking and way in POOLS else []
    side = draw(st.integers(4, 24))
    assume(leaves_out_nothing(layers, side))
    return nn.Sequential(*layers), way, side


def leaves_out_nothing(layers: list[nn.Module], side: int) -> bool:
    values, odd = side, []
    for step in decompose(nn.Sequential(*layers)).convolutions:
        values -= 2 * (step.layer.kernel_size[0] // 2 - step.layer.padding[0])
        odd += [values % 2] if step.pool is not None else []
        values = values // step.factor if step.pool is not None else -(-values // step.factor)
    return values > 0 and not any(odd[:-1])


@given(networks(), st.sampled_from([None, 0, 1, 2]))
def test_naive_channels_show_exactly_the_windows_of_the_plan(
    windows_shown: Callable[..., Tensor],
    network: tuple[nn.Sequential, str, int],
    directions: int | None,
) -> None:
    """Of the windows that overlap the image."""
    layers, way, side = network
    images = torch.rand(2, 1, side, side, generator=torch.Generator().manual_seed(0))
    chain = decompose(layers)
    layout = plan_views(chain.convolutions, (1, side, side), directions)
    channels = craft_convolutions(chain, layout, images, torch.Generator(), **NAIVE)
    found, windows = layers(images)[:, channels], layout.windows
    expected = windows_shown(images, layout.views, windows, way == "max")
    assert found.shape == expected.shape
    steps = windows.scale * torch.arange(windows.values)
    starts = torch.tensor([(view.row, view.column) for view in layout.views])[:, :, None] + steps
    rows, columns = ((starts > -windows.extent) & (starts < windows.side)).unbind(1)
    inside = rows[:, :, None] & columns[:, None, :]
    assert inside.any()
    torch.testing.assert_close(found[:, inside], expected[:, inside])


@pytest.mark.parametrize(
    ("width", "channels"),
    [
        (8, [6, 6, 6, 6, 6, 24]),
        (24, [6, 6, 6, 24, 24, 96]),
        (96, [6, 24, 24, 96, 96, 384]),
        (95, [6, 6, 6, 24, 24, 96]),
    ],
)
def test_as_many_directions_are_taken_as_there_are_channels_for(
    width: int, channels: list[int]
) -> None:
    """The last layers divide, where there are most channels: three colours, their reverses, x 4."""
    steps = decompose(parse("model", f"vgg_small+width={width}").build((3, 16, 16), 4))
    layout = plan_views(steps.convolutions, (3, 16, 16), None)
    assert [len(taps) for taps in layout.taps] == channels
    assert len({view.row for view in layout.views}) ** 2 == channels[-1] / channels[0]


def test_vgg16_shows_what_the_paper_says() -> None:
    """Section 3.4.2: 384 of 512 channels, windows of 32 pixels, shifted by multiples of 4."""
    with torch.device("meta"):
        network = parse("model", "vgg16").build((3, 224, 224), 10)
    layout = plan_views(decompose(network).convolutions, (3, 224, 224), 3)
    assert len(layout.views) == 384
    assert asdict(layout.windows) == {"scale": 32, "extent": 32, "values": 7, "side": 224}
    assert {view.row for view in layout.views} == {*range(0, 32, 4)}
    assert [len(taps) for taps in layout.taps] == [6] * 6 + [24] * 3 + [96] * 3 + [384]


def test_windows_that_would_leave_the_image_go_the_other_way() -> None:
    """LeNet-5's second convolution is left 8 of 16 rows or 9, from the fifth: two more go above."""
    layers = [convolution(inputs=1, kernel=5), nn.AvgPool2d(2)]
    assert {view.row for view in planned(*layers).views} == {0, 1}
    layers += [convolution(kernel=5, padded=False), nn.AvgPool2d(2)]
    assert {view.row for view in planned(*layers).views} == {2, 3, 4, 5}


def test_arrays_say_what_views_and_windows_say() -> None:
    """Pooling before strides leaves no gaps."""
    layout = planned(convolution(inputs=3), nn.MaxPool2d(2), convolution(stride=2), shape=(3, 8, 8))
    arrays = view_arrays(layout, np.arange(len(layout.views)))
    for name in ("colour", "reversed", "row", "column"):
        assert arrays[name].tolist() == [getattr(view, name) for view in layout.views]
    assert arrays["windows"].tolist() == list(asdict(layout.windows).values()) == [4, 2, 2, 8]


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([nn.Conv2d(1, 9, 2)], "convolution '0' does not have square kernels of odd side"),
        ([nn.Conv2d(1, 9, 1)], "convolution '0' does not have square kernels of odd side"),
        ([nn.Conv2d(1, 9, (3, 5))], "convolution '0' does not have square kernels"),
        ([nn.Conv2d(1, 9, 3, dilation=2)], "convolution '0' does not have square kernels"),
        ([convolution(9, 1), nn.Conv2d(9, 9, 3, groups=3)], "convolution '1' does not have"),
        ([convolution(9, 1), nn.Conv2d(9, 9, 3, stride=(1, 2))], "convolution '1' does not have"),
        ([nn.Conv2d(1, 9, 3, bias=False)], "convolution '0' has no bias"),
        ([convolution(9, 1), nn.MaxPool2d(3)], "pooling after '0' is not 2 x 2"),
        ([convolution(9, 1), nn.AvgPool2d(2, 1)], "pooling after '0' is not 2 x 2"),
        ([convolution(9, 1), nn.MaxPool2d(2, padding=1)], "pooling after '0' is not 2 x 2"),
        ([convolution(9, 1, stride=3)], "'0' downsamples images by 3, not by 1 or 2"),
        (
            [convolution(9, 1, stride=2), nn.AvgPool2d(2)],
            "'0' downsamples images by 4, not by 1 or 2",
        ),
        (
            [convolution(9, 1, stride=2), convolution(9, 9), nn.MaxPool2d(2)],
            "pooling after '1' combines pixels that are not adjacent, because of the stride of '0'",
        ),
        ([convolution(9, 1), convolution(1, 9), nn.MaxPool2d(2)], "'1' has 1 channels, but 2 are"),
    ],
)
def test_layers_that_one_hot_kernels_cannot_be_laid_through_are_named(
    layers: list[nn.Module], reason: str
) -> None:
    with pytest.raises(IncompatibleError, match=reason):
        planned(*layers)


def test_more_directions_than_channels_allow_are_refused() -> None:
    layers = convolution(8, 1), nn.MaxPool2d(2), convolution(31, 8), nn.MaxPool2d(2)
    assert len(planned(*layers).views) == 8
    refused = r"'2' has 31 channels, but 32 are needed; fewer directions"
    with pytest.raises(IncompatibleError, match=refused):
        planned(*layers, directions=2)


SHAPE = (3, 16, 16)
SMALL = "vgg_small+width=8+hidden=24"
EXTRAS = ("", "+norm=batch", "+normalise=imagenet", "+norm=batch+normalise=imagenet")
NAIVE_SPEC, HIDDEN = "mkor+hiding=naive", "mkor+quiet=1"
each_extra = pytest.mark.parametrize("extra", EXTRAS)
each_way = pytest.mark.parametrize("downsampling", ["pooling", "stride"])


@dataclass
class CraftedConvolutions:
    """A network before and after, where the views went, and what they show of images."""

    before: Chain
    after: Chain
    layout: Layout
    channels: Tensor
    network: nn.Module
    windows_shown: Callable[..., Tensor]

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the views; Shape (M, K, values, values)."""
        with torch.no_grad():
            found = features_before(self.network, self.after.dense[0].name)(images)
        values = self.layout.windows.values
        return found.unflatten(1, (-1, values, values))[:, self.channels]

    def shown(self, images: Tensor) -> Tensor:
        """Return what they show by definition; Shape (M, K, values, values)."""
        pooled = self.after.convolutions[-1].pool is not None
        return self.windows_shown(images, self.layout.views, self.layout.windows, pooled)


Lay = Callable[..., CraftedConvolutions]


@pytest.fixture
def lay(untrained: Callable[..., nn.Module], windows_shown: Callable[..., Tensor]) -> Lay:
    def laid(model: str, crafting: str, seed: int = 0) -> CraftedConvolutions:
        network, spec = untrained(model, SHAPE), parse("crafting", crafting)
        before, after = decompose(deepcopy(network)), decompose(network)
        layout = plan_views(after.convolutions, SHAPE, None)
        probes, random = synthetic_images(SHAPE, seed), torch.Generator().manual_seed(seed)
        fields = {name: getattr(spec, name) for name in ("beta", "noise", "quiet")}
        naive = spec.hiding == "naive"
        channels = craft_convolutions(after, layout, probes, random, naive, **fields)
        return CraftedConvolutions(before, after, layout, channels, network, windows_shown)

    return laid


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
@pytest.mark.parametrize("beta", [1, 0.5, 3])
@each_extra
@each_way
def test_naive_features_are_the_windows_times_beta_for_each_layer(
    lay: Lay, images: Tensor, activation: str, beta: float, extra: str, downsampling: str
) -> None:
    """Whatever the images were normalised by, and batch normalisation of either sign."""
    model = f"{SMALL}+activation={activation}+downsampling={downsampling}{extra}"
    laid = lay(model, f"{NAIVE_SPEC}+beta={beta}")
    found = laid.features(images) / beta ** len(laid.after.convolutions)
    torch.testing.assert_close(found, laid.shown(images), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
@each_extra
@each_way
def test_behind_curved_activations_features_rise_with_the_windows(
    lay: Lay, images: Tensor, activation: str, extra: str, downsampling: str
) -> None:
    model = f"{SMALL}+activation={activation}+downsampling={downsampling}{extra}"
    laid = lay(model, NAIVE_SPEC)
    shown = laid.shown(images).flatten()
    order = shown.argsort()
    gaps, steps = shown[order].diff(), laid.features(images).flatten()[order].diff()
    assert (steps[gaps > 0.01] > 0).all()


@each_extra
@each_way
def test_inconspicuous_features_are_nearly_the_windows(
    lay: Lay, images: Tensor, extra: str, downsampling: str
) -> None:
    laid = lay(f"{SMALL}+downsampling={downsampling}{extra}", HIDDEN)
    assert (laid.features(images) - laid.shown(images)).abs().max() < 0.1


def test_images_are_lost_among_other_channels_unless_these_are_quiet(
    lay: Lay, images: Tensor
) -> None:
    """Eq. 20 alone does not suffice."""
    errors = []
    for quiet in (0, 0.5, 1):
        laid = lay("vgg_small+width=16+hidden=16", f"mkor+quiet={quiet}")
        errors.append(float((laid.features(images) - laid.shown(images)).std(0).mean()))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_only_ways_into_channels_with_a_view_are_changed(lay: Lay) -> None:
    laid = lay(f"{SMALL}+norm=batch", HIDDEN)
    pairs = zip(laid.before.convolutions, laid.after.convolutions, strict=True)
    for taps, (before, after) in zip(laid.layout.taps, pairs, strict=True):
        changed = (before.layer.weight != after.layer.weight).flatten(1).any(1)
        assert changed.sum() == (before.layer.bias != after.layer.bias).sum() == len(taps)
        assert torch.equal(before.norm.weight, after.norm.weight)
        assert torch.equal(before.norm.running_var, after.norm.running_var)
    assert torch.equal(changed.nonzero().flatten(), laid.channels.sort().values)


def test_between_channels_with_a_view_stand_one_hot_kernels_and_faint_noise(lay: Lay) -> None:
    """In the first layer, all of whose inputs are the image: each colour, and each reversed."""
    laid = lay(SMALL, f"{HIDDEN}+beta=0.7+noise=0.01")
    before, after = (chain.convolutions[0].layer.weight.data for chain in (laid.before, laid.after))
    rows = after[(before != after).flatten(1).any(1)]
    hot = torch.isclose(rows.abs(), torch.tensor(0.7))
    assert hot.flatten(1).sum(1).tolist() == [1] * 6
    colours, signs = hot.nonzero()[:, 1], rows[hot].sign()
    assert len({*zip(colours.tolist(), signs.tolist(), strict=True)}) == 6
    assert rows[~hot].std() == pytest.approx(float(0.01 * before.std()), rel=0.15)


@pytest.mark.parametrize("quiet", [0, 0.2, 0.5])
def test_quiet_weights_lose_a_share_of_the_directions_at_most(lay: Lay, quiet: float) -> None:
    """Of random weights, sqrt(1 - directions lost / directions) of the length is left."""
    laid = lay("vgg_small+width=32+hidden=16", f"mkor+quiet={quiet}+noise=0")
    _, *steps = zip(laid.before.convolutions, laid.after.convolutions, strict=True)
    for (before, after), taps in zip(steps, laid.layout.taps, strict=False):
        old, new = before.layer.weight.data.flatten(1), after.layer.weight.data.flatten(1)
        carrying = (old != new).any(1)
        directions = old.shape[1] - 9 * len(taps)
        honest = old[carrying].norm(dim=1) * (directions / old.shape[1]) ** 0.5
        left = (new[carrying].norm(dim=1) ** 2 - 1) ** 0.5 / honest
        assert left.mean() > 0.95 * (1 - quiet) ** 0.5
        assert left.max() < 1.1


def test_the_seed_shuffles_channels_and_naive_ones_are_the_first(lay: Lay) -> None:
    one, other, naive = lay(SMALL, HIDDEN), lay(SMALL, HIDDEN, seed=1), lay(SMALL, NAIVE_SPEC)
    assert not torch.equal(one.channels, other.channels)
    assert torch.equal(naive.channels, torch.arange(len(naive.layout.views)))
    assert len(one.channels.unique()) == len(one.layout.views)
    for step in naive.after.convolutions:
        used = (step.layer.weight != 0).flatten(1).sum(1)
        assert used.max() == 1
