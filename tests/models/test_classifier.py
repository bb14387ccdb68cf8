"""The layer that gives the logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models.classifier import find_classifier

CLASSES = 4
SHAPE = (3, 16, 16)


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
    """Layers of one width, registered in another order than they run in; some are no classifier."""

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
    """Its logits are no layer's outputs."""

    def after(self, logits: Tensor) -> Tensor:
        return logits / 2


class Frozen(Tangle):
    """It computes its features without a graph."""

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.first(inputs).relu_()
        return self.last(features)


@pytest.mark.parametrize(
    ("network", "direct"), [(Tangle(), True), (Tempered(), False), (Frozen(), True)]
)
def test_it_is_the_last_that_the_logits_depend_on(network: nn.Module, direct: bool) -> None:
    found = find_classifier(network.requires_grad_(False), (6,), 4)
    assert (found.name, found.weight, found.bias) == ("last", "last.weight", "last.bias")
    assert found.gives_logits == direct
    assert found.features.shape[1:] == (4,) and (found.features >= 0).all()


def test_a_layer_whose_output_is_the_logits_comes_before_one_that_ran_later() -> None:
    class Gated(Tangle):
        def forward(self, inputs: Tensor) -> Tensor:
            logits = self.last(self.first(inputs))
            return logits + 0 * self.beside(logits)

    assert find_classifier(Gated(), (6,), 4).name == "last"


def test_the_network_is_left_as_it_is() -> None:
    network = Tangle().requires_grad_(False)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    find_classifier(network, (6,), 4)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert not any(layer._forward_hooks for layer in network.modules())


def test_a_weight_that_is_computed_or_shared_is_not_its_own() -> None:
    network = Tangle()
    network.first = nn.Linear(4, 4)
    network.last.weight = network.first.weight
    found = find_classifier(network, (4,), 4)
    assert (found.weight, found.bias) == (None, "last.bias")
    normed = nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 4)))
    assert find_classifier(normed, (6,), 4).weight is None
    with pytest.raises(
        IncompatibleError, match="is no dense layer with a weight and a bias of its own"
    ):
        find_classifier(normed, (6,), 4).dense_parameters()


def test_a_layer_registered_twice_has_its_own_parameters() -> None:
    network = Tangle()
    network.again = network.last
    assert find_classifier(network, (6,), 4).bias is not None


@pytest.mark.parametrize("classes", [5, 6])
def test_a_network_without_one_is_refused(classes: int) -> None:
    network = Tangle()
    network.unused = nn.Linear(4, 5)
    with pytest.raises(
        IncompatibleError, match=f"no dense layer with {classes} outputs that its logits"
    ):
        find_classifier(network, (6,), classes)
