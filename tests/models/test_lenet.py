from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.core.registry import parse
from gleak.models.chain import decompose

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


def test_every_layer_but_the_last_is_followed_by_a_sigmoid() -> None:
    layers = list(build_lenet5())
    trained = [n for n, layer in enumerate(layers) if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert [type(layers[n + 1]) for n in trained[:-1]] == [nn.Sigmoid] * 4
    assert trained[-1] == len(layers) - 1


@pytest.mark.parametrize("downsampling", DOWNSAMPLINGS)
def test_layers_of_lenet5_run_one_after_another(downsampling: str) -> None:
    chain = decompose(build_lenet5(f"+downsampling={downsampling}+dropout=0.25"))
    assert [step.factor for step in chain.convolutions] == [2, 2]
    assert [step.dropout for step in chain.dense] == [0.25, 0.25, 0]


ROG = ((3, 128, 128), 1000)


def build_lenet128(fields: str = "") -> nn.Sequential:
    with torch.device("meta"):
        return parse("model", f"lenet128{fields}").build(*ROG)


def kernel_shapes(network: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in network.parameters() if value.ndim > 1]


def test_it_has_two_padded_convolutions_and_two_dense_layers() -> None:
    features = 64 * 32 * 32
    expected = [(32, 3, 5, 5), (64, 32, 5, 5), (512, features), (1000, 512)]
    assert kernel_shapes(build_lenet128()) == expected


def test_its_first_dense_layer_has_the_weights_of_the_authors_network_and_no_bias() -> None:
    """33.6 million weights; convolutions alone have biases."""
    network = build_lenet128()
    dense = [layer for layer in network if isinstance(layer, nn.Linear)]
    assert dense[0].weight.numel() == 33_554_432
    assert [layer.bias for layer in dense] == [None, None]
    assert all(layer.bias is not None for layer in network if isinstance(layer, nn.Conv2d))


def test_small_versions_keep_their_proportions() -> None:
    expected = [(3, 3, 5, 5), (6, 3, 5, 5), (7, 6 * 32 * 32), (1000, 7)]
    assert kernel_shapes(build_lenet128("+width=3+hidden=7")) == expected


def test_images_are_halved_by_the_largest() -> None:
    values, found = torch.rand(2, *ROG[0], device="meta"), []
    for layer in build_lenet128():
        values = layer(values)
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            found.append(tuple(values.shape[1:]))
    assert found == [(32, 128, 128), (32, 64, 64), (64, 64, 64), (64, 32, 32)]


def test_every_layer_but_the_last_is_followed_by_a_relu_and_nothing_is_normalised() -> None:
    layers = list(build_lenet128())
    trained = [n for n, layer in enumerate(layers) if list(layer.parameters())]
    assert all(isinstance(layers[n], nn.Conv2d | nn.Linear) for n in trained)
    assert [type(layers[n + 1]) for n in trained[:-1]] == [nn.ReLU] * 3
    assert trained[-1] == len(layers) - 1


@pytest.mark.parametrize("downsampling", ["pooling", "stride"])
def test_layers_of_lenet128_run_one_after_another(downsampling: str) -> None:
    chain = decompose(build_lenet128(f"+downsampling={downsampling}+dropout=0.25"))
    assert [step.factor for step in chain.convolutions] == [2, 2]
    assert [step.dropout for step in chain.dense] == [0.25, 0]
