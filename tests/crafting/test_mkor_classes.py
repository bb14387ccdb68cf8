"""Gradients of dense layers in which classes keep apart, and what is left of the weights."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.crafting.mkor_layers import ClassPaths, craft_classes, needs_pairs, path_gains
from gleak.models.chain import Chain, decompose
from gleak.models.layers import ACTIVATIONS
from gleak.models.staged_layers import dense_layers

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
    network = nn.Sequential(*dense_layers([*sizes], activation, dropout)).eval()
    before, after = decompose(deepcopy(network)), decompose(network)
    random = torch.Generator().manual_seed(seed)
    paths = craft_classes(
        after.dense, torch.rand(16, FEATURES), parse("crafting", crafting), random
    )
    return Laid(network, before, after, paths)


def slopes(made: Laid, features: Tensor) -> Tensor:
    """Of each logit by each sum of the first layer's neurons; Shape (classes, M, neurons)."""
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
