"""What holds for every attack that ends in feature inversion."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gleak.artifacts.private import Private
from gleak.attacks.first_layer import label_parameters
from gleak.attacks.inversion_attack import FeatureInvertingAttack, embedding_layer
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from gleak.observation import Observation

Make = Callable[..., tuple[Observation, Private]]
INVERTING = sorted(
    n for n, cls in load("attack").items() if issubclass(cls, FeatureInvertingAttack)
)
FEDSGD = parse("client", "fedsgd")
FI = parse("attack", "fi")


class WithoutDense(nn.Module):
    """Logits by a convolution alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten())

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


@pytest.mark.parametrize("name", INVERTING)
@pytest.mark.parametrize(
    ("dataset", "model", "fault"),
    [
        ("photos", "fc2", "model fc2 begins with that layer; use cpa"),
        ("photos", "mlp", "model mlp begins with that layer; use cpa"),
        ("breast_cancer", "mlp", "does not take tabular data"),
    ],
)
def test_what_has_no_features_is_refused(name: str, dataset: str, model: str, fault: str) -> None:
    with pytest.raises(IncompatibleError, match=f"attack {name}.* {fault}"):
        parse("attack", name).check(parse("dataset", dataset), parse("model", model), FEDSGD)


@pytest.mark.parametrize("name", INVERTING)
@pytest.mark.parametrize("model", ["lenet", "resnet20", "vgg_small"])
def test_convolutional_networks_are_served(name: str, model: str) -> None:
    parse("attack", name).check(parse("dataset", "photos"), parse("model", model), FEDSGD)


@pytest.mark.parametrize("name", INVERTING)
def test_a_start_that_does_not_fit_is_named_with_its_attack(name: str) -> None:
    attack = parse("attack", f"{name}+start=red")
    with pytest.raises(IncompatibleError) as caught:
        attack.check(parse("dataset", "digits"), parse("model", "lenet"), FEDSGD)
    assert str(caught.value).startswith(f"attack {name}+start=red: start red ")


@pytest.mark.parametrize("name", INVERTING)
def test_every_field_of_the_search_reaches_it(name: str) -> None:
    changes = {
        "inversion_iterations": "9",
        "inversion_lr": "0.75",
        "tv": "0.25",
        "start": "uniform",
        "box": "false",
    }
    standard = parse("attack", name)
    assert set(changes) == set(FeatureInvertingAttack.model_fields)
    for field, value in changes.items():
        changed = parse("attack", f"{name}+{field}={value}")
        assert changed.search_parts() != standard.search_parts(), field
    assert parse("attack", f"{name}+inversion_iterations=9").evaluations == 9
    assert parse("attack", f"{name}+start=optimal").grants == standard.grants | {"class_sample"}


def test_the_network_itself_is_asked_where_the_spec_does_not_tell(make_case: Make) -> None:
    seen, _ = make_case(FI, model="lenet+width=3")
    dense = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    with pytest.raises(IncompatibleError, match="takes the samples themselves; use cpa"):
        embedding_layer(dense, seen.input_shape)
    with pytest.raises(IncompatibleError, match="this model has none"):
        embedding_layer(WithoutDense(), seen.input_shape)
    assert embedding_layer(seen.model, seen.input_shape) == "7"


def test_labels_are_read_off_the_classifier_alone() -> None:
    shape = (3, 8, 8)
    network = parse("model", "vgg_small+width=2+hidden=5").build(shape, 4)
    (name,) = label_parameters(network, shape)
    assert torch.equal(network.get_parameter(name), list(network.parameters())[-1])
    with pytest.raises(IncompatibleError, match="no dense layer with 4 outputs"):
        label_parameters(WithoutDense(), shape)
