"""Paths of classes through dense layers, and images carried through convolutions."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.crafting.mkor import (
    ClassPaths,
    craft_classes,
    needs_pairs,
    path_gains,
    synthetic_images,
)
from gleak.crafting.mkor_views import Layout, craft_convolutions, plan_views
from gleak.models.base import ACTIVATIONS, activation_layer
from gleak.models.chain import Chain, decompose
from gleak.models.layer_search import features_before

CLASSES, FEATURES, WIDTH = 4, 12, 40
each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
each_depth = pytest.mark.parametrize("layers", [2, 3])


@dataclass
class Laid:
    """Dense layers before and after, and the paths through them."""

    network: nn.Sequential
    before: Chain
    after: Chain
    paths: ClassPaths


def laid(
    crafting: str,
    activation: str,
    layers: int,
    width: int = WIDTH,
    dropout: float = 0.0,
    seed: int = 7,
) -> Laid:
    torch.manual_seed(layers)
    sizes = pairwise([FEATURES, *[width] * (layers - 1), CLASSES])
    *parts, _, _ = (
        part
        for pair in sizes
        for part in (nn.Linear(*pair), activation_layer(activation), nn.Dropout(dropout))
    )
    network = nn.Sequential(*parts).eval()
    before, after = decompose(deepcopy(network)), decompose(network)
    random = torch.Generator().manual_seed(seed)
    paths = craft_classes(
        after.dense, torch.rand(16, FEATURES), parse("crafting", crafting), random
    )
    return Laid(network, before, after, paths)


def slopes(made: Laid, features: Tensor) -> Tensor:
    """Differentiate each logit by the first pre-activations; Shape (classes, M, neurons)."""
    sums = made.after.dense[0].layer(features)

    def rest(each: Tensor) -> Tensor:
        return made.network[1:](each).sum(0)

    return torch.autograd.functional.jacobian(rest, sums)


@each_activation
@each_depth
@pytest.mark.parametrize("fields", ["+hiding=naive", "+noise=0", "+noise=0+alpha=-2.5"])
def test_a_path_leads_to_its_class_alone(activation: str, layers: int, fields: str) -> None:
    """Of what the server reads only neighbours in a pair share a class."""
    made, features = laid(f"mkor{fields}", activation, layers), torch.rand(20, FEATURES)
    found = slopes(made, features)[:, :, made.paths.rows.flatten()]
    own = torch.arange(CLASSES).repeat_interleave(made.paths.rows.shape[1])
    for label in range(CLASSES):
        assert (found[label][:, own != label] == 0).all()
        assert (found[label][:, own == label] != 0).any(1).all()


@each_activation
@each_depth
def test_gains_are_the_slopes_of_logits(activation: str, layers: int) -> None:
    """Of the neuron that is on; behind curved activations on a middling image."""
    made, features = laid("mkor+noise=0", activation, layers), torch.rand(20, FEATURES)
    found = slopes(made, features)
    told = path_gains(made.after.dense, torch.rand(16, FEATURES), made.paths.rows)
    for label, (rows, gains) in enumerate(zip(made.paths.rows, told, strict=True)):
        strongest = found[label][:, rows].abs().amax(1)
        curved = activation in ("sigmoid", "tanh")
        torch.testing.assert_close(
            strongest, gains[:1].abs().expand(20), rtol=0.4 if curved else 1e-5, atol=0
        )


@pytest.mark.parametrize("alpha", [-1, -0.3])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_one_neuron_of_each_pair_is_on_whatever_the_sample(activation: str, alpha: float) -> None:
    made = laid(f"mkor+alpha={alpha}", activation, 2)
    sums = made.after.dense[0].layer(torch.randn(50, FEATURES))[:, made.paths.rows]
    torch.testing.assert_close(sums[..., 1], alpha * sums[..., 0])
    assert ((sums > 0).sum(-1) == 1).all()


@pytest.mark.parametrize(
    ("fields", "activation", "pairs"),
    [
        ("", nn.ReLU(), True),
        ("", nn.LeakyReLU(), True),
        ("", nn.Sigmoid(), False),
        ("", nn.Identity(), False),
        ("+hiding=naive", nn.ReLU(), False),
    ],
)
def test_pairs_are_needed_where_half_of_the_neurons_are_off(
    fields: str, activation: nn.Module, pairs: bool
) -> None:
    assert needs_pairs(activation, parse("crafting", f"mkor{fields}")) == pairs


@pytest.mark.parametrize(
    ("dropout", "fields", "paths"), [(0, "", 1), (0.5, "", 4), (0.5, "+paths=2", 2)]
)
def test_dropout_is_met_by_parallel_paths(dropout: float, fields: str, paths: int) -> None:
    made = laid(f"mkor{fields}", "relu", 3, dropout=dropout)
    assert made.paths.rows.shape == (CLASSES, 2 * paths)
    assert len(made.paths.rows.unique()) == CLASSES * 2 * paths


@each_activation
def test_the_first_layer_changes_in_mirrored_neurons_alone(activation: str) -> None:
    made = laid("mkor", activation, 2)
    before, after = made.before.dense[0].layer, made.after.dense[0].layer
    changed = (before.weight != after.weight).any(1) | (before.bias != after.bias)
    mirrored = made.paths.rows[:, 1] if made.paths.pairs else torch.tensor([], dtype=torch.long)
    assert torch.equal(changed.nonzero().flatten(), mirrored.sort().values)


@each_depth
def test_later_layers_change_in_what_the_paths_come_from(layers: int) -> None:
    """Eq. 12 and 13: noise there but on the path; elsewhere the weights stay, biases turn up."""
    made = laid("mkor+noise=0.01", "relu", layers)
    carriers = made.paths.rows
    for before, after in zip(made.before.dense[1:], made.after.dense[1:], strict=True):
        old, new = before.layer.requires_grad_(False), after.layer.requires_grad_(False)
        changed = (old.weight != new.weight).any(0).nonzero().flatten()
        assert torch.equal(changed, carriers.flatten().sort().values)
        assert torch.isin(new.bias, torch.cat([old.bias, -old.bias])).all()
        assert (new.bias >= old.bias).all()
        taken = new.weight[:, carriers.flatten()]
        heaviest = taken.argmax(0)
        noise = taken[taken < old.weight.abs().amax(1).min() / 2]
        assert noise.std() == pytest.approx(float(0.01 * old.weight.std()), rel=0.2)
        torch.testing.assert_close(taken.amax(0), old.weight.abs().amax(1)[heaviest])
        carriers = heaviest.view(carriers.shape)[:, :1]
    assert torch.equal(carriers.flatten(), torch.arange(CLASSES))


@each_depth
def test_naive_weights_are_zero_beside_the_paths(layers: int) -> None:
    made = laid("mkor+hiding=naive", "relu", layers)
    first, *others = (step.layer.weight for step in made.after.dense)
    assert (first[:CLASSES] == 1 / FEATURES).all()
    assert (first[CLASSES:] == 0).all()
    assert all(other.sum() == CLASSES and (other.amax(1) <= 1).all() for other in others)


def test_the_random_stream_chooses_the_neurons() -> None:
    one, other = (laid("mkor", "relu", 2, seed=seed).paths.rows for seed in (1, 2))
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("fields", "activation", "layers", "width", "reason"),
    [
        ("", "relu", 1, 9, "need two dense layers or more, but this network has 1"),
        ("", "relu", 2, 7, "dense layer '0' has 7 neurons, but paths of all classes need 8"),
        ("+hiding=naive", "relu", 2, 3, "dense layer '0' has 3 neurons, .* all classes need 4"),
        ("", "sigmoid", 3, 3, "dense layer '0' has 3 neurons, .* all classes need 4"),
        ("+paths=3", "relu", 3, 23, "dense layer '0' has 23 neurons, .* all classes need 24"),
    ],
)
def test_too_few_layers_or_neurons_are_refused(
    fields: str, activation: str, layers: int, width: int, reason: str
) -> None:
    with pytest.raises(IncompatibleError, match=reason):
        laid(f"mkor{fields}", activation, layers, width)


def test_neurons_for_all_paths_suffice() -> None:
    assert laid("mkor", "relu", 2, 8).paths.rows.unique().tolist() == [*range(8)]
    assert laid("mkor+paths=3", "relu", 3, 24).paths.rows.numel() == 24


SHAPE = (3, 16, 16)
SMALL = "vgg_small+width=8+hidden=24"
EXTRAS = ("", "+norm=batch", "+normalise=imagenet", "+norm=batch+normalise=imagenet")
STRAIGHT = ("relu", "leaky_relu")
NAIVE, HIDDEN = "mkor+hiding=naive", "mkor+quiet=1"
each_extra = pytest.mark.parametrize("extra", EXTRAS)
each_way = pytest.mark.parametrize("downsampling", ["pooling", "stride"])


@dataclass
class CraftedConvolutions:
    """A network before and after, and where the views went."""

    before: Chain
    after: Chain
    layout: Layout
    channels: Tensor
    network: nn.Module

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the views; Shape (M, K, values, values)."""
        with torch.no_grad():
            found = features_before(self.network, self.after.dense[0].name)(images)
        values = self.layout.windows.values
        return found.unflatten(1, (-1, values, values))[:, self.channels]


Lay = Callable[..., CraftedConvolutions]


@pytest.fixture
def lay(untrained: Callable[..., nn.Module]) -> Lay:
    def laid(model: str, crafting: str, seed: int = 0) -> CraftedConvolutions:
        network = untrained(model, SHAPE)
        before, after = decompose(deepcopy(network)), decompose(network)
        layout = plan_views(after.convolutions, SHAPE, None)
        random = torch.Generator().manual_seed(seed)
        spec = parse("crafting", crafting)
        channels = craft_convolutions(
            after,
            layout,
            synthetic_images(SHAPE, seed),
            random,
            naive=spec.hiding == "naive",
            beta=spec.beta,
            noise=spec.noise,
            quiet=spec.quiet,
        )
        return CraftedConvolutions(before, after, layout, channels, network)

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
