"""The layer that gives the logits."""

from __future__ import annotations

import pytest

from gleak.errors import FitError
from gleak.models.classifier import classifier_parameters
from gleak.registry import parse

CLASSES = 4


@pytest.mark.parametrize("name", ["fc2", "lenet", "mlp", "mlp+hidden=4", "resnet20", "vgg_small"])
def test_its_bias_moves_each_logit_by_itself(name: str) -> None:
    network = parse("model", name).build((3, 16, 16), CLASSES).eval().requires_grad_(False)
    parameters = dict(network.named_parameters())
    weight, bias = classifier_parameters(parameters, CLASSES)
    sample = parameters[weight].new_full((1, 3, 16, 16), 0.5)
    parameters[weight].zero_()
    parameters[bias].copy_(parameters[bias].new_tensor([3.0, 1.0, 4.0, 2.0]))
    assert network(sample).tolist() == [[3.0, 1.0, 4.0, 2.0]]


def test_a_network_without_one_is_refused() -> None:
    network = parse("model", "lenet").build((3, 16, 16), CLASSES)
    with pytest.raises(FitError, match="no dense layer with 5 outputs and a bias"):
        classifier_parameters(dict(network.named_parameters()), CLASSES + 1)
