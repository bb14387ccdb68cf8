from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from gleak.artifacts.dataset import Dataset
from gleak.core.registry import parse
from gleak.training.base import Init, initialise


def drawn(init: Init, model: str = "resnet20", seed: int = 0) -> nn.Module:
    network = parse("model", model).build((3, 8, 8), 10)
    initialise(network, init, 0.5, seed)
    return network


def convolutions(network: nn.Module) -> list[nn.Conv2d]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]


@pytest.mark.parametrize("model", ["resnet20+width=2", "resnet20+norm=none", "vgg_small"])
def test_kaiming_keeps_the_variance_of_gradients_in_every_convolution(model: str) -> None:
    """Normal with variance 2 / (outputs x kernel), which torch's default has a third of."""
    for layer in convolutions(drawn("kaiming", model)):
        weights = layer.weight.detach()
        deviation = math.sqrt(2 / (layer.out_channels * layer.weight[0, 0].numel()))
        precision = 4 / math.sqrt(2 * weights.numel())
        assert weights.std().item() == pytest.approx(deviation, rel=precision)
        assert weights.mean().item() == pytest.approx(0, abs=deviation * precision * math.sqrt(2))
        assert weights.abs().max() > 2.5 * deviation


def test_kaiming_changes_the_weights_of_convolutions_alone() -> None:
    kaiming, default = (drawn(init, "resnet20+norm=none") for init in ("kaiming", "default"))
    changed = {id(layer.weight) for layer in convolutions(kaiming)}
    for ours, theirs in zip(kaiming.parameters(), default.parameters(), strict=True):
        assert torch.equal(ours, theirs) == (id(ours) not in changed)


def test_uniform_initialisation_fills_its_range() -> None:
    values = parameters_to_vector(drawn("uniform", "lenet+width=4").parameters())
    assert 0.48 < values.max() <= 0.5
    assert -0.5 <= values.min() < -0.48
    assert abs(values.mean()) < 0.04


def test_default_initialisation_is_torchs() -> None:
    """Torch draws weights and biases uniformly within one over the root of the inputs."""
    for layer in drawn("default", "lenet+width=4"):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            limit = layer.weight[0].numel() ** -0.5
            assert 0.8 * limit < layer.weight.abs().max() <= limit
            assert layer.bias.abs().max() <= limit


def test_repetitions_have_other_parameters_and_the_first_is_that_without(images: Dataset):
    vectors = []
    for repetition in ("", "+repetition=0", "+repetition=1"):
        network = parse("model", "lenet+width=4").build(images.shape, 4)
        parse("training", f"untrained{repetition}").train(network, images, seed=3)
        vectors.append(parameters_to_vector(network.parameters()))
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.isclose(vectors[0], vectors[2]).any()
