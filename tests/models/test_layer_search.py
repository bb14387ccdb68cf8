from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models import batching
from gleak.models.layer_search import (
    features_before,
    find_classifier,
    first_biased_input,
    first_dense_input,
    first_dense_layer,
    last_dense_input,
    true_embeddings,
)
from gleak.models.layers import Normalisation
from gleak.models.tracing import trace

IMAGES = torch.rand(5, 3, 12, 12, generator=torch.Generator().manual_seed(0))


class Alarm(nn.Module):
    """Layer that must not run."""

    def forward(self, inputs: Tensor) -> Tensor:
        raise AssertionError("a layer behind the embeddings was run")


def test_what_comes_behind_is_not_run_and_the_network_is_left_as_it_was() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, 4), Alarm())
    features = features_before(network, "1")
    assert torch.equal(features(IMAGES), features(IMAGES))
    with pytest.raises(AssertionError, match="behind the embeddings"):
        network(IMAGES)
    network[0].spare, network[2] = nn.Linear(2, 2), nn.Identity()
    with pytest.raises(ValueError, match=r"layer '0\.spare' does not run"):
        features_before(network, "0.spare")(IMAGES)


class ByName(nn.Module):
    """Its layers are given their inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3 * 12 * 12, 6), nn.Linear(6, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(input=self.first(input=inputs.flatten(1)).relu())


def test_layers_whose_inputs_are_given_by_name_are_found() -> None:
    network = ByName()
    entry = first_dense_input(network, IMAGES)
    assert entry is not None
    assert entry.layer == "first"
    assert torch.equal(features_before(network, "first")(IMAGES), entry.embeddings)
    assert find_classifier(network, IMAGES.shape[1:], 4).name == "head"
    passes = [one.name for one in trace(network, IMAGES) if one.inputs is not None]
    assert passes == ["first", "head", ""]


@pytest.mark.parametrize("share", ["tied", "computed"])
def test_a_dense_layer_whose_weight_is_not_its_own_is_not_the_first(share: str) -> None:
    first, other = nn.Linear(3 * 12 * 12, 4), nn.Linear(3 * 12 * 12, 4)
    network = nn.Sequential(nn.Flatten(), first, nn.Linear(4, 4))
    assert first_dense_layer(network, IMAGES.shape[1:]) is not None
    if share == "tied":
        other.weight = first.weight
        network = nn.ModuleDict({"unused": other, "used": network})
        network.forward = network["used"].forward
    else:
        parametrizations.orthogonal(first)
    assert first_dense_layer(network, IMAGES.shape[1:]) is None


class Doubled(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, 2 * self.weight, self.bias)


class Decoder(nn.Module):
    """A dense layer whose weight is used again, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(12, 7), nn.Linear(12, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        codes = self.encoder(inputs.flatten(1)).sigmoid()
        return self.head(functional.linear(codes, self.encoder.weight.T))


class Sorted(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1).sort(1).values


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Flatten(), Doubled(12, 7), nn.ReLU(), nn.Linear(7, 3)),
        nn.Sequential(Sorted(), nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 3)),
        Decoder(),
        nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 7), nn.Linear(7, 3)).train(),
    ],
    ids=["twice the weight", "sorted", "decoder", "batch statistics"],
)
def test_a_layer_whose_gradient_is_not_that_of_the_samples_is_none_of_samples(
    network: nn.Module,
) -> None:
    layer = first_dense_layer(network, (3, 2, 2))
    assert layer is not None
    assert not layer.takes_samples


class Gated(nn.Module):
    """Layers on means of colours and on few neurons, which run before that of the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.narrow, self.body = nn.Linear(3, 7), nn.Linear(12, 2), nn.Linear(12, 7)
        self.unused, self.head, self.side = nn.Linear(12, 9), nn.Linear(7, 3), nn.Linear(2, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        self.unused(inputs.flatten(1))
        weights = self.gate(inputs.mean((2, 3))).sigmoid()
        side = self.side(self.narrow(inputs.flatten(1)).relu())
        return self.head(weights * self.body(inputs.flatten(1)).relu()) + side


def test_of_layers_that_take_the_samples_the_widest_is_found_wherever_it_runs() -> None:
    layer = first_dense_layer(Gated(), (3, 2, 2))
    assert layer is not None
    assert layer.name == "body"


class Twice(nn.Module):
    """Network that runs one dense layer twice, then another."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.last = nn.Linear(432, 432), nn.Linear(432, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.dense(self.dense(inputs.flatten(1))))


@pytest.mark.parametrize(
    ("name", "layer", "width"),
    [
        ("fc2", "1", 432),
        ("mlp+hidden=7", "1", 432),
        ("lenet+width=2", "7", 18),
        ("resnet20+width=2", "23", 128),
        ("vgg_small+width=4+hidden=8", "classifier.0", 16),
    ],
)
def test_the_first_dense_layer_is_found_by_name(name: str, layer: str, width: int) -> None:
    """Its neurons and what it takes are known before it is built."""
    spec = parse("model", name)
    network = spec.build(IMAGES.shape[1:], 4).eval()
    entry = first_dense_input(network, IMAGES)
    assert entry is not None
    assert (entry.layer, entry.embeddings.shape) == (layer, (5, width))
    first = first_dense_layer(network, tuple(IMAGES.shape[1:]))
    assert first is not None
    assert first.name == layer
    assert first.takes_samples == (spec.first_layer == "dense")
    assert network.get_submodule(layer).out_features == spec.first_dense_neurons(4)
    assert not any(module._forward_pre_hooks for module in network.modules())


@pytest.mark.parametrize(
    ("before", "scaled"),
    [
        (nn.Identity(), True),
        (Normalisation((0.5, 0.4, 0.3), (0.1, 0.2, 0.3)), True),
        (nn.BatchNorm2d(3).eval(), True),
        (nn.Sigmoid(), False),
        (nn.AvgPool2d(3, stride=1, padding=1), False),
        (nn.PixelShuffle(1), True),
    ],
    ids=["nothing", "normalised", "batch norm", "sigmoid", "blurred", "reshaped"],
)
def test_samples_may_be_scaled_before_the_first_dense_layer(
    before: nn.Module, scaled: bool
) -> None:
    network = nn.Sequential(before, nn.Flatten(), nn.Linear(12, 4)).eval()
    layer = first_dense_layer(network, (3, 2, 2))
    assert layer is not None
    assert layer.takes_samples == scaled
    samples = np.random.default_rng(0).random((1, 2, 3, 2, 2), dtype=np.float32)
    assert (true_embeddings(network, samples) is None) == scaled


def test_a_scaling_gives_the_gradient_and_the_layer_of_the_samples_themselves() -> None:
    """Compared with autograd on a layer that takes the samples and computes the same."""
    samples = torch.rand(5, 3, 2, 2, dtype=torch.double)
    dense, direct = nn.Linear(12, 4).double(), nn.Linear(12, 4).double()
    scaled = Normalisation((0.5, 0.4, 0.3), (0.1, 0.2, 0.3)).double()
    network = nn.Sequential(scaled, nn.Flatten(), dense)
    layer = first_dense_layer(network, (3, 2, 2))
    assert layer is not None
    assert layer.scaling is not None
    weight, bias = layer.scaling.of_layer(*dense.parameters())
    direct.load_state_dict({"weight": weight.detach(), "bias": bias.detach()})
    torch.testing.assert_close(direct(samples.flatten(1)), network(samples))
    sent = torch.autograd.grad(network(samples).sin().sum(), list(dense.parameters()))
    loss = direct(samples.flatten(1)).sin().sum()
    expected = torch.autograd.grad(loss, list(direct.parameters()))
    torch.testing.assert_close(layer.scaling.gradient_of_samples(*sent), expected[0])
    torch.testing.assert_close(sent[1], expected[1])


def test_where_only_the_network_tells_the_neurons_are_unknown() -> None:
    assert parse("model", "custom").first_dense_neurons(4) is None
    assert parse("model", "lenet").first_dense_neurons(None) is None
    network = nn.Sequential(nn.Conv2d(3, 4, 12), nn.Flatten())
    assert first_dense_layer(network, tuple(IMAGES.shape[1:])) is None


@pytest.mark.parametrize(
    ("name", "layer"),
    [("fc2", "3"), ("lenet+width=2", "7"), ("vgg_small+width=4+hidden=8", "classifier.3")],
)
def test_the_last_dense_layer_is_that_of_the_classes(name: str, layer: str) -> None:
    network = parse("model", name).build(IMAGES.shape[1:], 4).eval()
    entry = last_dense_input(network, IMAGES)
    assert entry is not None
    assert entry.layer == layer
    assert torch.equal(network.get_submodule(layer)(entry.embeddings), network(IMAGES))


def test_a_layer_without_a_bias_is_passed_over_where_one_is_needed() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(432, 7, bias=False), nn.Linear(7, 4))
    first = first_dense_input(network, IMAGES)
    assert first is not None
    assert first.layer == "1"
    entry = first_biased_input(network, IMAGES)
    assert entry is not None
    assert entry.layer == "2"
    assert torch.equal(entry.embeddings, network[1](IMAGES.flatten(1)))


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Conv2d(3, 4, 12), nn.Flatten()),
        Twice(),
        nn.Sequential(nn.Linear(12, 2), nn.Flatten(), nn.Linear(72, 4)),
    ],
    ids=["no dense layer", "passed twice", "not one vector a sample"],
)
def test_other_networks_have_none(network: nn.Module) -> None:
    assert first_dense_input(network, IMAGES) is None
    assert true_embeddings(network, IMAGES[None].numpy()) is None


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_true_embeddings_are_each_victims_own(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "VALUES", at_once * IMAGES[0].numel())
    network = parse("model", "lenet+width=2").build(IMAGES.shape[1:], 4).eval()
    victims = torch.stack([IMAGES, IMAGES.flip(0), IMAGES**2])
    found = true_embeddings(network, victims.numpy())
    assert found is not None
    assert found.shape == (3, 5, 18)
    expected = network[:-1](victims.flatten(0, 1)).detach().numpy()
    np.testing.assert_allclose(found.reshape(15, 18), expected, rtol=1e-5)


CLASSES, SHAPE = 4, (3, 16, 16)


@pytest.mark.parametrize(
    "name", ["fc2", "lenet", "mlp", "mlp+hidden=4", "resnet20", "vgg_small", "lenet+precode=8"]
)
def test_its_bias_moves_each_logit_by_itself(name: str) -> None:
    network = parse("model", name).build(SHAPE, CLASSES).eval().requires_grad_(False)
    found = find_classifier(network, SHAPE, CLASSES)
    weight, bias = map(network.get_parameter, found.dense_parameters())
    weight.zero_()
    bias.copy_(bias.new_tensor([3.0, 1.0, 4.0, 2.0]))
    assert network(weight.new_full((1, *SHAPE), 0.5)).tolist() == [[3.0, 1.0, 4.0, 2.0]]
    assert found.gives_logits


class Tangle(nn.Module):
    """Layers of one width, registered in another order than they run; some are no classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)
        self.first, self.beside = nn.Linear(6, 4), nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.first(inputs).relu_()
        logits = self.last(features)
        self.kept = self.beside(features)
        return self.after(logits)

    def after(self, logits: Tensor) -> Tensor:
        return logits


class Tempered(Tangle):
    """Network whose logits are no layer's outputs."""

    def after(self, logits: Tensor) -> Tensor:
        return logits / 2


class Frozen(Tangle):
    """Network that computes its features without a graph."""

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.first(inputs).relu_()
        return self.last(features)


class Reused(Tangle):
    """Network in which another layer runs on the logits."""

    def after(self, logits: Tensor) -> Tensor:
        return logits + 0 * self.beside(logits)


@pytest.mark.parametrize(
    ("network", "direct"),
    [(Tangle(), True), (Tempered(), False), (Frozen(), True), (Reused(), True)],
)
def test_it_is_the_last_that_the_logits_depend_on(network: nn.Module, direct: bool) -> None:
    found = find_classifier(network.requires_grad_(False), (6,), 4)
    assert (found.name, found.weight, found.bias) == ("last", "last.weight", "last.bias")
    assert found.gives_logits == direct
    assert found.features.shape[1:] == (4,) and (found.features >= 0).all()


def test_a_weight_that_is_computed_or_shared_is_not_its_own() -> None:
    network = Tangle()
    network.first = nn.Linear(4, 4)
    network.last.weight = network.first.weight
    classifier = find_classifier(network, (4,), 4)
    assert (classifier.weight, classifier.bias) == (None, "last.bias")
    normed = find_classifier(nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 4))), (6,), 4)
    assert normed.weight is None
    refused = "is not a dense layer with its own weight and bias"
    with pytest.raises(IncompatibleError, match=refused):
        normed.dense_parameters()
    network.unused = nn.Linear(4, 5)
    with pytest.raises(IncompatibleError, match="no dense layer with 5 outputs on which its"):
        find_classifier(network, (4,), 5)
