from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.core.registry import parse
from gleak.models.blocks import Residual
from gleak.models.convolution import Convolution
from gleak.models.residual import Block, basic_block, bottleneck


@pytest.mark.parametrize(
    ("block", "shortcut"),
    [
        (basic_block(4, 4, 1), None),
        (basic_block(4, 8, 1), Convolution(4, 8, 1, 1)),
        (basic_block(4, 4, 2), Convolution(4, 4, 1, 2)),
        (basic_block(4, 8, 2), Convolution(4, 8, 1, 2)),
        (bottleneck(8, 2, 1), None),
        (bottleneck(4, 2, 1), Convolution(4, 8, 1, 1)),
        (bottleneck(8, 2, 2), Convolution(8, 8, 1, 2)),
    ],
)
def test_shortcuts_are_convolutions_where_the_shape_changes(
    block: Block, shortcut: Convolution | None
) -> None:
    assert block.shortcut == shortcut


def test_a_bottleneck_is_narrow_within_and_steps_there() -> None:
    body = (Convolution(6, 2, 1), Convolution(2, 2, 3, 2), Convolution(2, 8, 1))
    assert bottleneck(6, 2, 2) == Block(body)


@pytest.mark.parametrize("norm", ["batch", "none"])
def test_a_block_adds_the_inputs_to_what_its_body_makes_of_them(norm: str) -> None:
    layers = parse("model", f"resnet20+norm={norm}").build((2, 8, 8), 2)
    block = next(layer for layer in layers.eval() if isinstance(layer, Residual))
    inputs = torch.rand(2, 16, 5, 5)
    assert torch.equal(block(inputs), block.body(inputs) + inputs)
    convolutions = [layer for layer in block.body if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == 2
    norms = [layer for layer in block.body if isinstance(layer, nn.BatchNorm2d)]
    assert len(norms) == (2 if norm == "batch" else 0)
    assert all((layer.bias is None) == (norm == "batch") for layer in convolutions)
