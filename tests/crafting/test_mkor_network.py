"""Crafting of a whole network, and its responses to grey images."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.crafting.mkor import grey_responses, synthetic_images
from gleak.models.chain import decompose

SHAPE = (3, 16, 16)
MODEL = "vgg_small+width=8+hidden=24"
Untrained = Callable[..., nn.Module]


def crafted(network: nn.Module, crafting: str = "mkor", seed: int = 0) -> dict[str, np.ndarray]:
    return parse("crafting", crafting).craft_network(network, SHAPE, 4, seed)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 5, 5)])
def test_made_up_images_are_images_of_their_seed(shape: tuple[int, ...]) -> None:
    one, again, other = (synthetic_images(shape, seed) for seed in (0, 0, 1))
    assert one.shape[1:] == shape
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert (one.min(), one.max()) == (0, 1)
    flat = one.flatten(1).std(1) < 1e-6
    assert {0, 1} <= {*one[flat, 0, 0, 0].tolist()}
    assert (~flat).sum() > flat.sum()


def test_neighbours_are_more_alike_than_strangers_in_made_up_images() -> None:
    images = synthetic_images((3, 32, 32), 0)
    images = images[images.flatten(1).std(1) > 1e-6]
    near, far = (images.roll(by, 3) - images for by in (1, 16))
    assert far[..., 16:].abs().mean() > 1.5 * near[..., 1:].abs().mean()
    assert (images[:, 0] != images[:, 1]).any()


def test_the_seed_decides_what_is_crafted(untrained: Untrained) -> None:
    honest = untrained(f"{MODEL}+norm=batch", SHAPE)
    networks = [deepcopy(honest) for _ in range(3)]
    one, again, other = (
        crafted(network, seed=seed) for network, seed in zip(networks, (0, 0, 1), strict=True)
    )
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert one.keys() == other.keys()
    assert not np.array_equal(one["channel"], other["channel"])
    for values, repeated in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        assert torch.equal(values, repeated)


def test_what_is_no_weight_or_bias_stays_as_it_was(untrained: Untrained) -> None:
    honest = untrained(f"{MODEL}+norm=batch", SHAPE)
    network = deepcopy(honest)
    crafted(network)
    changed = [
        name
        for name, value in network.state_dict().items()
        if not torch.equal(value, honest.state_dict()[name])
    ]
    layers = {name.rpartition(".")[0] for name in changed}
    kinds = {type(network.get_submodule(layer)) for layer in layers}
    assert kinds == {nn.Conv2d, nn.Linear}
    assert len(layers) == 8


@pytest.mark.parametrize("hiding", ["naive", "inconspicuous"])
def test_a_sink_takes_nearly_all_of_the_softmax(untrained: Untrained, hiding: str) -> None:
    """And nothing else than that logit's bias changes for it."""
    plain, sunk = untrained(MODEL, SHAPE), untrained(MODEL, SHAPE)
    without = crafted(plain, f"mkor+hiding={hiding}")
    secret = crafted(sunk, f"mkor+hiding={hiding}+sink=12")
    assert np.sort(without["chances"])[-1] < 0.9 < 0.999 < np.sort(secret["chances"])[-1]
    raised = plain.classifier[-1].bias != sunk.classifier[-1].bias
    assert raised.nonzero().flatten().tolist() == [secret["chances"].argmax()]
    sunk.classifier[-1].bias.data[raised] -= 12
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(sunk.state_dict()[name], value)


def test_a_cover_of_noise_lies_on_every_weight(untrained: Untrained) -> None:
    bare, covered = untrained(MODEL, SHAPE), untrained(MODEL, SHAPE)
    crafted(bare)
    crafted(covered, "mkor+cover=0.1")
    for name, value in bare.named_parameters():
        noise = (covered.get_parameter(name) - value).detach()
        if value.ndim == 1:
            assert not noise.any()
            continue
        assert noise.std() == pytest.approx(float(0.1 * value.detach().std()), rel=0.15)
        assert (noise != 0).float().mean() > 0.99


def test_sinks_are_of_many_classes(untrained: Untrained) -> None:
    sinks = {
        int(crafted(untrained(MODEL, SHAPE), "mkor+sink=30", seed)["chances"].argmax())
        for seed in range(8)
    }
    assert len(sinks) > 1


def test_the_secret_says_where_to_read(untrained: Untrained) -> None:
    secret = crafted(untrained(MODEL, SHAPE))
    views, values = len(secret["channel"]), secret["windows"][2]
    for name in ("colour", "reversed", "row", "column"):
        assert secret[name].shape == (views,)
    assert len({*secret["channel"]}) == views
    assert secret["responses"].shape == (len(secret["levels"]), views, values, values)
    assert secret["rows"].shape == secret["gains"].shape == (4, 2)
    assert secret["chances"].sum() == pytest.approx(1)


def convolutional(*layers: nn.Module, features: int) -> nn.Sequential:
    dense = nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 4)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *layers, nn.Flatten(), *dense).eval()


def test_pooling_that_resizes_is_refused_and_pooling_that_does_not_is_taken() -> None:
    crafted(convolutional(nn.AdaptiveAvgPool2d(16), features=8 * 256))
    network = convolutional(nn.AdaptiveAvgPool2d(4), features=8 * 16)
    with pytest.raises(
        IncompatibleError, match=r"has 128 inputs, .* give 8 x 16 x 16; choose images"
    ):
        crafted(network)


def test_networks_without_convolutions_or_dense_layers_are_refused() -> None:
    dense = nn.Sequential(nn.Flatten(), nn.Linear(768, 16), nn.ReLU(), nn.Linear(16, 4))
    for network in (dense, nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())):
        with pytest.raises(IncompatibleError, match="it has no convolutions before dense layers"):
            crafted(network)


def test_one_dense_layer_is_refused() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Flatten(), nn.Linear(2048, 4))
    with pytest.raises(IncompatibleError, match="two dense layers or more, but this network has 1"):
        crafted(network.eval())


MODELS = (
    "vgg_small+width=4+hidden=16",
    "vgg_small+width=4+hidden=16+activation=tanh+norm=batch",
    "lenet5",
)


@pytest.mark.parametrize("model", MODELS)
def test_responses_are_what_the_first_dense_layer_is_given_of_grey_images(
    untrained: Untrained, model: str
) -> None:
    network = untrained(model, SHAPE)
    chain, channels = decompose(network), torch.tensor([5, 0, 3])
    found = grey_responses(network, chain, channels, SHAPE)
    assert found["responses"].shape[:2] == (len(found["levels"]), 3)
    for number in (0, len(found["levels"]) // 2, -1):
        given = []
        hook = chain.dense[0].layer.register_forward_pre_hook(
            lambda _, got, into=given: into.extend(got)
        )
        network(torch.full((1, *SHAPE), found["levels"][number]))
        hook.remove()
        maps = given[0].reshape(chain.convolutions[-1].layer.out_channels, -1)[channels]
        expected = maps.reshape(found["responses"][number].shape)
        np.testing.assert_allclose(found["responses"][number], expected.detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("activation", "curved"), [("relu", False), ("leaky_relu", False), ("sigmoid", True)]
)
def test_curves_are_known_at_many_intensities_and_straight_lines_at_their_ends(
    untrained: Untrained, activation: str, curved: bool
) -> None:
    network = untrained(f"{MODELS[0]}+activation={activation}", SHAPE)
    levels = grey_responses(network, decompose(network), torch.arange(2), SHAPE)["levels"]
    assert levels[[0, -1]].tolist() == [0, 1]
    assert (np.diff(levels) > 0).all()
    assert (len(levels) > 2) == curved


def test_a_network_that_lets_nothing_through_is_refused(untrained: Untrained) -> None:
    network = untrained(MODELS[0], SHAPE)
    chain = decompose(network)
    nn.init.zeros_(chain.convolutions[2].layer.weight)
    with pytest.raises(
        IncompatibleError, match=r"after 6 convolutions black and white images have the same.*beta"
    ):
        grey_responses(network, chain, torch.arange(2), SHAPE)
