from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from gleak.core.registry import parse
from gleak.runtime.torchvision_ops import ensure_operators

IMAGENET = ((3, 224, 224), 1000)
TINY = "vgg_small+width=2+hidden=6"


def test_vgg16_is_torchvisions_network_behind_its_normalisation() -> None:
    ensure_operators()
    from torchvision.models import VGG16_Weights, vgg16

    ours = parse("model", "vgg16").build((3, 40, 33), 1000).eval()
    with torch.device("meta"):
        theirs = vgg16(weights=None).eval()
    theirs.load_state_dict(ours.state_dict(), assign=True)
    images = torch.rand(2, 3, 40, 33)
    prepare = VGG16_Weights.IMAGENET1K_V1.transforms()
    mean, deviation = (torch.tensor(v)[:, None, None] for v in (prepare.mean, prepare.std))
    assert torch.equal(ours(images), theirs((images - mean) / deviation))


def test_vgg16_with_batch_norm_is_torchvisions_too() -> None:
    """Names and shapes of parameters and buffers are equal, and the order of layers."""
    ensure_operators()
    from torchvision.models import vgg16_bn

    with torch.device("meta"):
        theirs = vgg16_bn(weights=None, init_weights=False)
        ours = parse("model", "vgg16+norm=batch").build((3, 32, 32), 1000)
    shapes = [{n: v.shape for n, v in one.state_dict().items()} for one in (ours, theirs)]
    assert shapes[0] == shapes[1]
    assert [type(layer) for layer in ours.features] == [type(layer) for layer in theirs.features]


def test_vgg16_is_as_large_as_published() -> None:
    """138 million in the paper's Table 2; torchvision also states 15.47 billion multiply-adds."""
    spec = parse("model", "vgg16")
    assert spec.parameters(*IMAGENET) == 138357544
    assert spec.multiply_adds(*IMAGENET) / 1e9 == pytest.approx(15.47, abs=0.005)


@pytest.mark.parametrize("side", [1, 7, 8, 9, 32])
def test_the_last_convolution_of_each_stage_steps_where_nothing_is_pooled(side: int) -> None:
    network = parse("model", f"{TINY}+downsampling=stride").build((1, side, side), 4)
    strides = [at.stride[0] for at in network.features if isinstance(at, nn.Conv2d)]
    assert strides == [1, 2] * 3
    assert not [layer for layer in network.modules() if isinstance(layer, nn.MaxPool2d)]
    halved = math.ceil(side / 8)
    assert network.features(torch.rand(2, 1, side, side)).shape == (2, 8, halved, halved)


@pytest.mark.parametrize(("side", "positions"), [(32, 4), (128, 16)])
def test_vgg7_sees_every_position_and_has_no_dense_bias(side: int, positions: int) -> None:
    pairs = [(3, 128), (128, 128), (128, 256), (256, 256), (256, 512), (512, 512)]
    convolutions = sum((9 * inputs + 1) * outputs for inputs, outputs in pairs)
    dense = 512 * positions**2 * 1024 + 1024 * 10
    assert parse("model", "vgg7").parameters((3, side, side), 10) == convolutions + dense
    with torch.device("meta"):
        network = parse("model", "vgg7").build((3, side, side), 10)
    assert [layer.bias for layer in network.modules() if isinstance(layer, nn.Linear)] == [None] * 2
