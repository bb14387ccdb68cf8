from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.core.registry import parse

MNIST, ROG = ((1, 28, 28), 10), ((3, 128, 128), 1000)
KINDS = nn.Conv2d | nn.AvgPool2d | nn.MaxPool2d


def build(model: str, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    with torch.device("meta"):
        return parse("model", model).build(shape, classes)


@pytest.mark.parametrize("downsampling", ["pooling", "stride"])
def test_the_first_dense_layer_takes_four_hundred_values(downsampling: str) -> None:
    """And 61,706 parameters are known of LeNet-5."""
    network = build(f"lenet5+downsampling={downsampling}", *MNIST)
    shapes = [tuple(value.shape) for value in network.parameters() if value.ndim > 1]
    assert shapes == [(6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]
    assert sum(value.numel() for value in network.parameters()) == 61706


@pytest.mark.parametrize(
    ("model", "setting", "shapes"),
    [
        ("lenet5", MNIST, [(6, 28, 28), (6, 14, 14), (16, 10, 10), (16, 5, 5)]),
        ("lenet5+downsampling=stride", MNIST, [(6, 14, 14), (16, 5, 5)]),
        ("lenet128", ROG, [(32, 128, 128), (32, 64, 64), (64, 64, 64), (64, 32, 32)]),
    ],
)
def test_images_are_halved_by_pooling_or_by_steps(
    model: str, setting: tuple[tuple[int, ...], int], shapes: list[tuple[int, ...]]
) -> None:
    values, halved = torch.rand(2, *setting[0], device="meta"), []
    for layer in build(model, *setting):
        values = layer(values)
        halved += [tuple(values.shape[1:])] if isinstance(layer, KINDS) else []
    assert halved == shapes


def test_its_first_dense_layer_has_the_weights_of_the_authors_network_and_no_bias() -> None:
    """33.6 million weights; convolutions alone have biases."""
    network = build("lenet128", *ROG)
    dense = [layer for layer in network if isinstance(layer, nn.Linear)]
    assert dense[0].weight.numel() == 33_554_432
    assert [layer.bias for layer in dense] == [None, None]
    assert all(layer.bias is not None for layer in network if isinstance(layer, nn.Conv2d))
    pools = [type(layer) for layer in network if isinstance(layer, nn.AvgPool2d | nn.MaxPool2d)]
    assert pools == [nn.MaxPool2d] * 2
