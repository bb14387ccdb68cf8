from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gleak.core.registry import parse
from gleak.models.base import Convolution
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
def test_the_last_dense_layers_inputs_are_dropped_in_training_mode(name: str) -> None:
    """Parameter names must not depend on an unused dropout layer; attackers' networks drop none."""
    plain, dropping = (parse("model", f"{name}{f}").build(SHAPE, 3) for f in ("", "+dropout=0.25"))
    *_, layer, classifier = dropping
    assert (type(layer), layer.p, type(classifier)) == (nn.Dropout, 0.25, nn.Linear)
    assert not any(isinstance(layer, nn.Dropout) for layer in plain)
    assert len(dropping) == len(plain) + 1
    with torch.no_grad():
        for parameter, value in zip(dropping.parameters(), plain.parameters(), strict=True):
            parameter.copy_(value)
    inputs = torch.rand(4, *SHAPE)
    assert not torch.equal(dropping(inputs), plain(inputs))
    assert torch.equal(dropping.eval()(inputs), plain(inputs))


def test_each_channel_is_shifted_and_scaled_without_a_state() -> None:
    values = torch.rand(4, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    layer = Normalisation([0.5, 0.25], [2.0, 0.1])
    torch.testing.assert_close(layer(values)[:, 0], (values[:, 0] - 0.5) / 2)
    torch.testing.assert_close(layer(values)[:, 1], (values[:, 1] - 0.25) / 0.1)
    assert not layer.state_dict()
    assert layer.to(torch.float64).mean.dtype == torch.float64
