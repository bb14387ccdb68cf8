"""Networks that MKOR can craft, paths of classes, and responses to grey images."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.model import Model
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.crafting.mkor import (
    ClassPaths,
    MKORCrafting,
    craft_classes,
    grey_responses,
    path_gains,
    synthetic_images,
)
from gleak.models.base import ACTIVATIONS, activation_layer
from gleak.models.chain import Chain, decompose
from gleak.models.layer_search import features_before
from gleak.studies.cell import Cell

SMALL = "vgg_small+width=8+hidden=20"


@pytest.mark.parametrize(
    ("dataset", "model", "crafting", "reason"),
    [
        ("photos", "lenet", "mkor", "needs two dense layers or more, but model lenet has one; use"),
        ("photos", "lenet128", "mkor", "biases of dense layers, and those of model lenet128 have"),
        ("photos", "resnet20", "mkor", "needs two dense layers or more, but model resnet20 has"),
        (
            "photos",
            "lenet+precode=9",
            "mkor",
            "not support the variational .* lenet.precode=9; use",
        ),
        ("photos", "mlp", "mkor", "mlp begins with a dense layer, .*; use attack cpa or aono"),
        ("breast_cancer", "mlp", "mkor", "copies images, not tabular data"),
        ("photos", "vgg_small+hidden=9", "mkor", "10 classes need 20 neurons .* has 9$"),
        ("photos", "vgg_small+hidden=29", "mkor+paths=3", "10 classes need 60 neurons .* has 29$"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(
    dataset: str, model: str, crafting: str, reason: str
) -> None:
    levels = {"dataset": dataset, "model": model, "training": "untrained", "crafting": crafting}
    with pytest.raises(IncompatibleError, match=f"crafting {re.escape(crafting)}.*{reason}"):
        Cell.parse(levels)


@pytest.mark.parametrize(
    ("model", "crafting", "reason"),
    [
        ("lenet+width=4", "mkor", "two dense layers or more"),
        ("resnet20+width=1", "mkor", "cannot contain Residual"),
        ("mlp+hidden=16", "mkor", "no convolutions before dense layers"),
        ("vgg_small+width=2+hidden=20", "mkor", "'features.0' has 2 channels, but 6 are needed"),
        ("vgg_small+width=8+hidden=7", "mkor", "'classifier.0' has 7 neurons, .* need 8"),
        (SMALL, "mkor+directions=2", "has 16 channels, but 24 are needed; fewer directions"),
    ],
)
def test_what_only_the_network_tells_is_refused_when_it_is_crafted(
    simulate: Callable[..., Path], model: str, crafting: str, reason: str
) -> None:
    artifact = Model.read(simulate(model=model) / "model.h5")
    fit = re.escape(f"crafting {crafting} does not fit model {artifact.model}: ")
    with pytest.raises(IncompatibleError, match=f"{fit}.*{reason}"):
        parse("crafting", crafting).craft(artifact, 0)


def test_crafted_parameters_are_those_of_the_model_in_kind(simulate: Callable[..., Path]) -> None:
    """And spread as widely, none of them zero; what is no weight or bias stays as it was."""
    honest = Model.read(simulate(model=f"{SMALL}+norm=batch", training="untrained") / "model.h5")
    crafted = MKORCrafting(quiet=0).craft(honest, 0).model
    assert not len(crafted.test_accuracy)
    assert list(crafted.parameters) == list(honest.parameters)
    norms = {name.rpartition(".")[0] for name in honest.buffers}
    for name, value in crafted.parameters.items():
        before = honest.parameters[name]
        assert (value.shape, value.dtype) == (before.shape, before.dtype)
        assert np.array_equal(value, before) == (name.rpartition(".")[0] in norms)
        if value.ndim > 1:
            assert 0.9 * before.std() < value.std() < 2 * before.std()
            assert (value != 0).all()
    for name, value in crafted.buffers.items():
        assert np.array_equal(value, honest.buffers[name])


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
    networks = [untrained(f"{MODEL}+norm=batch", SHAPE) for _ in range(2)]
    one, other = (crafted(network, seed=seed) for seed, network in enumerate(networks))
    assert one.keys() == other.keys()
    assert not np.array_equal(one["channel"], other["channel"])


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


def test_the_secret_says_where_to_read(untrained: Untrained) -> None:
    secret = crafted(untrained(MODEL, SHAPE))
    views, values = len(secret["channel"]), secret["windows"][2]
    for name in ("colour", "reversed", "row", "column"):
        assert secret[name].shape == (views,)
    assert len({*secret["channel"]}) == views
    assert secret["responses"].shape == (len(secret["levels"]), views, values, values)
    assert secret["rows"].shape == secret["gains"].shape == (4, 2)
    assert secret["chances"].sum() == pytest.approx(1)


RESIZED = r"has 128 inputs, .* give 8 x 16 x 16; choose images"


def test_pooling_that_resizes_is_refused_and_pooling_that_does_not_is_taken() -> None:
    for side, refused in (
        (16, nullcontext()),
        (4, pytest.raises(IncompatibleError, match=RESIZED)),
    ):
        dense = nn.Linear(8 * side**2, 16), nn.ReLU(), nn.Linear(16, 4)
        layers = nn.Conv2d(3, 8, 3, padding=1), nn.AdaptiveAvgPool2d(side), nn.Flatten()
        with refused:
            crafted(nn.Sequential(*layers, *dense).eval())


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
        grey = torch.full((1, *SHAPE), found["levels"][number])
        given = features_before(network, chain.dense[0].name)(grey)
        maps = given.reshape(chain.convolutions[-1].layer.out_channels, -1)[channels]
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
    assert np.allclose(levels, np.linspace(0, 1, len(levels)))
    assert (len(levels) > 2) == curved


def test_a_network_that_lets_nothing_through_is_refused(untrained: Untrained) -> None:
    network = untrained(MODELS[0], SHAPE)
    chain = decompose(network)
    nn.init.zeros_(chain.convolutions[2].layer.weight)
    refused = r"after 6 convolutions black and white images have the same.*beta"
    with pytest.raises(IncompatibleError, match=refused):
        grey_responses(network, chain, torch.arange(2), SHAPE)


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

    def slopes(self, features: Tensor) -> Tensor:
        """Differentiate each logit by the first pre-activations; Shape (classes, M, neurons)."""
        sums = self.after.dense[0].layer(features)
        return torch.autograd.functional.jacobian(lambda x: self.network[1:](x).sum(0), sums)


def laid(
    crafting: str, activation: str, layers: int, width: int = WIDTH, dropout: float = 0.0
) -> Laid:
    torch.manual_seed(layers)
    parts: list[nn.Module] = []
    for pair in pairwise([FEATURES, *[width] * (layers - 1), CLASSES]):
        parts += [nn.Linear(*pair), activation_layer(activation), nn.Dropout(dropout)]
    network = nn.Sequential(*parts[:-2]).eval()
    before, after = decompose(deepcopy(network)), decompose(network)
    features, spec = torch.rand(16, FEATURES), parse("crafting", crafting)
    paths = craft_classes(after.dense, features, spec, torch.Generator().manual_seed(7))
    return Laid(network, before, after, paths)


@each_activation
@each_depth
@pytest.mark.parametrize("fields", ["+hiding=naive", "+noise=0", "+noise=0+alpha=-2.5"])
def test_a_path_leads_to_its_class_alone(activation: str, layers: int, fields: str) -> None:
    """Of what the server reads only neighbours in a pair share a class."""
    made, features = laid(f"mkor{fields}", activation, layers), torch.rand(20, FEATURES)
    found = made.slopes(features)[:, :, made.paths.rows.flatten()]
    own = torch.arange(CLASSES).repeat_interleave(made.paths.rows.shape[1])
    for label in range(CLASSES):
        assert (found[label][:, own != label] == 0).all()
        assert (found[label][:, own == label] != 0).any(1).all()


@each_activation
@each_depth
def test_gains_are_the_slopes_of_logits(activation: str, layers: int) -> None:
    """Of the neuron that is on; behind curved activations on a middling image."""
    made, features = laid("mkor+noise=0", activation, layers), torch.rand(20, FEATURES)
    found = made.slopes(features)
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
    assert made.paths.pairs
    sums = made.after.dense[0].layer(torch.randn(50, FEATURES))[:, made.paths.rows]
    torch.testing.assert_close(sums[..., 1], alpha * sums[..., 0])
    assert ((sums > 0).sum(-1) == 1).all()
    for fields, smooth in (("", "sigmoid"), ("+hiding=naive", activation)):
        assert not laid(f"mkor{fields}", smooth, 2).paths.pairs


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
