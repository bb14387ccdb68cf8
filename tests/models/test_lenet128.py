from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.core.registry import parse
from gleak.models.chain import take_apart

ROG = ((3, 128, 128), 1000)


def build(fields: str = "") -> nn.Sequential:
    with torch.device("meta"):
        return parse("model", f"lenet128{fields}").build(*ROG)


def weights(network: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in network.parameters() if value.ndim > 1]


def test_it_has_two_unpadded_convolutions_and_two_dense_layers() -> None:
    features = 64 * 29 * 29
    expected = [(32, 3, 5, 5), (64, 32, 5, 5), (512, features), (1000, 512)]
    assert weights(build()) == expected


def test_small_versions_keep_their_proportions() -> None:
    expected = [(3, 3, 5, 5), (6, 3, 5, 5), (7, 6 * 29 * 29), (1000, 7)]
    assert weights(build("+width=3+hidden=7")) == expected


def test_images_are_halved_by_the_largest() -> None:
    values, found = torch.rand(2, *ROG[0], device="meta"), []
    for layer in build():
        values = layer(values)
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            found.append(tuple(values.shape[1:]))
    assert found == [(32, 124, 124), (32, 62, 62), (64, 58, 58), (64, 29, 29)]


def test_every_layer_but_the_last_is_followed_by_a_relu_and_nothing_is_normalised() -> None:
    layers = list(build())
    trained = [n for n, layer in enumerate(layers) if list(layer.parameters())]
    assert all(isinstance(layers[n], nn.Conv2d | nn.Linear) for n in trained)
    assert [type(layers[n + 1]) for n in trained[:-1]] == [nn.ReLU] * 3
    assert trained[-1] == len(layers) - 1


@pytest.mark.parametrize("downsampling", ["pooling", "stride"])
def test_its_layers_run_one_after_another(downsampling: str) -> None:
    chain = take_apart(build(f"+downsampling={downsampling}+dropout=0.25"))
    assert [step.factor for step in chain.convolutions] == [2, 2]
    assert [step.dropout for step in chain.dense] == [0.25, 0]
