"""Images carried through convolutions, and what is left of the weights."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from gleak.core.registry import parse
from gleak.crafting.mkor_layers import craft_convolutions
from gleak.crafting.mkor_network import synthetic_images
from gleak.crafting.mkor_views import Layout, plan_views
from gleak.models.chain import Chain, decompose
from gleak.models.layer_search import features_before

SHAPE = (3, 16, 16)
SMALL = "vgg_small+width=8+hidden=24"
EXTRAS = ("", "+norm=batch", "+normalise=imagenet", "+norm=batch+normalise=imagenet")
STRAIGHT = ("relu", "leaky_relu")
NAIVE, HIDDEN = "mkor+hiding=naive", "mkor+quiet=1"
each_extra = pytest.mark.parametrize("extra", EXTRAS)
each_way = pytest.mark.parametrize("downsampling", ["pooling", "stride"])


@dataclass
class Laid:
    """A network before and after, and where the views went."""

    before: Chain
    after: Chain
    layout: Layout
    channels: Tensor
    network: nn.Module

    def features(self, images: Tensor) -> Tensor:
        """What the views show; Shape (M, K, values, values)."""
        with torch.no_grad():
            found = features_before(self.network, self.after.dense[0].name)(images)
        values = self.layout.windows.values
        return found.unflatten(1, (-1, values, values))[:, self.channels]


Lay = Callable[..., Laid]


@pytest.fixture
def lay(untrained: Callable[..., nn.Module]) -> Lay:
    def laid(model: str, crafting: str, seed: int = 0) -> Laid:
        network = untrained(model, SHAPE)
        before, after = decompose(deepcopy(network)), decompose(network)
        layout = plan_views(after.convolutions, SHAPE, None)
        random = torch.Generator().manual_seed(seed)
        channels = craft_convolutions(
            after, layout, synthetic_images(SHAPE, seed), parse("crafting", crafting), random
        )
        return Laid(before, after, layout, channels, network)

    return laid


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("activation", STRAIGHT)
@pytest.mark.parametrize("beta", [1, 0.5, 3])
@each_extra
@each_way
def test_naive_features_are_the_windows_times_beta_for_each_layer(
    lay: Lay,
    images: Tensor,
    windows_shown: Callable[..., Tensor],
    activation: str,
    beta: float,
    extra: str,
    downsampling: str,
) -> None:
    """Whatever the images were normalised by, and batch normalisation of either sign."""
    model = f"{SMALL}+activation={activation}+downsampling={downsampling}{extra}"
    laid = lay(model, f"{NAIVE}+beta={beta}")
    expected = windows_shown(
        images, laid.layout.views, laid.layout.windows, downsampling == "pooling"
    )
    factor = beta ** len(laid.after.convolutions)
    torch.testing.assert_close(laid.features(images) / factor, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
@each_extra
@each_way
def test_behind_curved_activations_features_rise_with_the_windows(
    lay: Lay,
    images: Tensor,
    windows_shown: Callable[..., Tensor],
    activation: str,
    extra: str,
    downsampling: str,
) -> None:
    model = f"{SMALL}+activation={activation}+downsampling={downsampling}{extra}"
    laid = lay(model, NAIVE)
    shown = windows_shown(images, laid.layout.views, laid.layout.windows, downsampling == "pooling")
    order = shown.flatten().argsort()
    gaps, steps = shown.flatten()[order].diff(), laid.features(images).flatten()[order].diff()
    assert (steps[gaps > 0.01] > 0).all()


@each_extra
@each_way
def test_inconspicuous_features_are_nearly_the_windows(
    lay: Lay,
    images: Tensor,
    windows_shown: Callable[..., Tensor],
    extra: str,
    downsampling: str,
) -> None:
    laid = lay(f"{SMALL}+downsampling={downsampling}{extra}", HIDDEN)
    shown = windows_shown(images, laid.layout.views, laid.layout.windows, downsampling == "pooling")
    assert (laid.features(images) - shown).abs().max() < 0.1


def test_images_are_lost_among_other_channels_unless_these_are_quiet(
    lay: Lay, images: Tensor, windows_shown: Callable[..., Tensor]
) -> None:
    """Eq. 20 alone does not suffice."""
    errors = []
    for quiet in (0, 0.5, 1):
        laid = lay("vgg_small+width=16+hidden=16", f"mkor+quiet={quiet}")
        shown = windows_shown(images, laid.layout.views, laid.layout.windows, True)
        spread = (laid.features(images) - shown).std(0).mean()
        errors.append(float(spread))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_only_ways_into_channels_with_a_view_are_changed(lay: Lay) -> None:
    laid = lay(f"{SMALL}+norm=batch", HIDDEN)
    taps = [len(taps) for taps in laid.layout.taps]
    for count, before, after in zip(
        taps, laid.before.convolutions, laid.after.convolutions, strict=True
    ):
        changed = (before.layer.weight != after.layer.weight).flatten(1).any(1)
        assert changed.sum() == count
        assert (before.layer.bias != after.layer.bias).sum() == count
        assert torch.equal(before.norm.weight, after.norm.weight)
        assert torch.equal(before.norm.running_var, after.norm.running_var)
    last = (before.layer.weight != after.layer.weight).flatten(1).any(1).nonzero().flatten()
    assert torch.equal(last, laid.channels.sort().values)


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
    one, other, naive = lay(SMALL, HIDDEN), lay(SMALL, HIDDEN, seed=1), lay(SMALL, NAIVE)
    assert not torch.equal(one.channels, other.channels)
    assert torch.equal(naive.channels, torch.arange(len(naive.layout.views)))
    assert len(one.channels.unique()) == len(one.layout.views)
    for step in naive.after.convolutions:
        used = (step.layer.weight != 0).flatten(1).sum(1)
        assert used.max() == 1
