from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.core.registry import parse

MNIST = ((1, 28, 28), 10)


DOWNSAMPLINGS = ["pooling", "stride"]


def build_lenet5(fields: str = "") -> nn.Sequential:
    return parse("model", f"lenet5{fields}").build(*MNIST)


@pytest.mark.parametrize("downsampling", DOWNSAMPLINGS)
def test_the_first_dense_layer_takes_four_hundred_values(downsampling: str) -> None:
    network = build_lenet5(f"+downsampling={downsampling}")
    shapes = [tuple(value.shape) for value in network.parameters() if value.ndim > 1]
    assert shapes == [(6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]


def test_it_has_the_parameters_that_are_known_of_it() -> None:
    """61,706: 156 and 2,416 in the convolutions, 48,120, 10,164 and 850 in the dense layers."""
    assert parse("model", "lenet5").parameters(*MNIST) == 156 + 2416 + 48120 + 10164 + 850


@pytest.mark.parametrize(
    ("downsampling", "shapes"),
    [
        ("pooling", [(6, 28, 28), (6, 14, 14), (16, 10, 10), (16, 5, 5)]),
        ("stride", [(6, 14, 14), (16, 5, 5)]),
    ],
)
def test_images_are_halved_by_the_mean_or_by_steps(
    downsampling: str, shapes: list[tuple[int, ...]]
) -> None:
    values, found = torch.rand(2, 1, 28, 28), []
    for layer in build_lenet5(f"+downsampling={downsampling}"):
        values = layer(values)
        if isinstance(layer, nn.Conv2d | nn.AvgPool2d):
            found.append(tuple(values.shape[1:]))
    assert found == shapes


ROG = ((3, 128, 128), 1000)


def build_lenet128(fields: str = "") -> nn.Sequential:
    with torch.device("meta"):
        return parse("model", f"lenet128{fields}").build(*ROG)


def test_its_first_dense_layer_has_the_weights_of_the_authors_network_and_no_bias() -> None:
    """33.6 million weights; convolutions alone have biases."""
    network = build_lenet128()
    dense = [layer for layer in network if isinstance(layer, nn.Linear)]
    assert dense[0].weight.numel() == 33_554_432
    assert [layer.bias for layer in dense] == [None, None]
    assert all(layer.bias is not None for layer in network if isinstance(layer, nn.Conv2d))


def test_images_are_halved_by_the_largest() -> None:
    values, found = torch.rand(2, *ROG[0], device="meta"), []
    for layer in build_lenet128():
        values = layer(values)
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            found.append(tuple(values.shape[1:]))
    assert found == [(32, 128, 128), (32, 64, 64), (64, 64, 64), (64, 32, 32)]
