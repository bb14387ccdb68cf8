from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.core.registry import parse
from gleak.models.blocks import Residual

CIFAR10 = ((3, 32, 32), 10)


@pytest.mark.parametrize(
    ("fields", "millions", "source"),
    [("", 0.27, "He et al., Table 6"), ("+width=4", 4.3, "AGIC")],
)
def test_it_is_as_large_as_published(fields: str, millions: float, source: str) -> None:
    found = parse("model", f"resnet20{fields}").parameters(*CIFAR10)
    assert found / 1e6 == pytest.approx(millions, rel=0.02), source


def test_it_has_twenty_layers_and_two_shortcuts() -> None:
    """Convolutions of 3 x 3 and the dense layer; shortcuts do not count."""
    layers = list(parse("model", "resnet20").build(*CIFAR10).modules())
    kernels = [layer.kernel_size for layer in layers if isinstance(layer, nn.Conv2d)]
    assert kernels.count((3, 3)) + sum(isinstance(layer, nn.Linear) for layer in layers) == 20
    assert kernels.count((1, 1)) == 2


@pytest.mark.parametrize(("downsampling", "sides"), [("true", [32, 16, 8]), ("false", [32] * 3)])
def test_stages_halve_the_image_if_asked_to(downsampling: str, sides: list[int]) -> None:
    network = parse("model", f"resnet20+downsampling={downsampling}").build(*CIFAR10).eval()
    values, shapes = torch.rand(1, 3, 32, 32), []
    for layer in network:
        values = layer(values)
        if isinstance(layer, Residual):
            shapes.append(tuple(values.shape[1:]))
    channels = [16, 32, 64]
    assert shapes == [(c, s, s) for c, s in zip(channels, sides, strict=True) for _ in range(3)]


@pytest.mark.parametrize("side", [8, 9, 15, 32])
def test_images_of_any_size_from_eight_pixels_are_taken(side: int) -> None:
    spec = parse("model", "resnet20")
    spec.check("image", (1, side, side))
    assert spec.build((1, side, side), 4).eval()(torch.rand(2, 1, side, side)).shape == (2, 4)


def test_batch_norm_is_left_out_if_asked_to() -> None:
    network = parse("model", "resnet20+norm=none").build(*CIFAR10)
    assert not list(network.buffers())
    assert all(m.bias is not None for m in network.modules() if isinstance(m, nn.Conv2d))
