from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gleak.core.registry import parse
from gleak.models.base import Convolution, normalisation_layers
from gleak.models.layers import Normalisation


@given(
    kernel=st.sampled_from([1, 3, 5, 7]),
    stride=st.integers(1, 3),
    padded=st.booleans(),
    spare=st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_a_described_convolution_is_the_built_one(
    kernel: int, stride: int, padded: bool, spare: tuple[int, int]
) -> None:
    """Images are at least one pixel, or the kernel, large."""
    described = Convolution(2, 3, kernel, stride, padded)
    built = described.layer()
    least = 1 if padded else kernel
    sides = tuple(least + more for more in spare)
    assert built.weight.numel() == described.weights
    assert built(torch.zeros(1, 2, *sides)).shape == (1, 3, *described.sides(sides))


NAMES = ["lenet", "mlp", "fc2"]
SHAPE = (1, 8, 8)


@pytest.mark.parametrize("name", NAMES)
def test_the_last_dense_layers_inputs_are_dropped(name: str) -> None:
    *_, layer, classifier = parse("model", f"{name}+dropout=0.25").build(SHAPE, 3)
    assert isinstance(layer, nn.Dropout)
    assert layer.p == 0.25
    assert isinstance(classifier, nn.Linear)


@pytest.mark.parametrize("name", NAMES)
def test_no_layer_drops_nothing(name: str) -> None:
    """Parameter names must not depend on an unused dropout layer."""
    plain, dropping = (parse("model", f"{name}{f}").build(SHAPE, 3) for f in ("", "+dropout=0.5"))
    assert not any(isinstance(layer, nn.Dropout) for layer in plain)
    assert len(dropping) == len(plain) + 1


@pytest.mark.parametrize("name", NAMES)
def test_the_attackers_network_drops_nothing(name: str) -> None:
    plain, dropping = (
        parse("model", f"{name}{f}").build(SHAPE, 3).eval() for f in ("", "+dropout=0.5")
    )
    values = zip(dropping.parameters(), plain.parameters(), strict=True)
    with torch.no_grad():
        for parameter, value in values:
            parameter.copy_(value)
    inputs = torch.rand(4, *SHAPE)
    assert torch.equal(dropping(inputs), plain(inputs))
    assert not torch.equal(dropping.train()(inputs), plain(inputs))


def test_each_channel_is_shifted_and_scaled() -> None:
    values = torch.rand(4, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    found = Normalisation([0.5, 0.25], [2.0, 0.1])(values)
    torch.testing.assert_close(found[:, 0], (values[:, 0] - 0.5) / 2)
    torch.testing.assert_close(found[:, 1], (values[:, 1] - 0.25) / 0.1)


def test_it_has_no_state_and_nothing_to_train() -> None:
    (layer,) = normalisation_layers("imagenet")
    assert not layer.state_dict()
    assert not list(layer.parameters())
    assert layer.to(torch.float64).mean.dtype == torch.float64
