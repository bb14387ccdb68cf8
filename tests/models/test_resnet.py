from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gleak.core.registry import parse
from gleak.models.layers import ActivatedResidual, Residual
from gleak.runtime.torchvision_ops import ensure_operators


@pytest.mark.parametrize("norm", ["batch", "none"])
def test_a_block_adds_the_inputs_to_what_its_body_makes_of_them(norm: str) -> None:
    layers = parse("model", f"resnet20+norm={norm}").build((2, 8, 8), 2)
    block = next(layer for layer in layers.eval() if isinstance(layer, Residual))
    inputs = torch.rand(2, 16, 5, 5)
    assert torch.equal(block(inputs), block.body(inputs) + inputs)
    convolutions = [layer for layer in block.body if isinstance(layer, nn.Conv2d)]
    norms = [layer for layer in block.body if isinstance(layer, nn.BatchNorm2d)]
    assert (len(convolutions), len(norms)) == (2, 2 if norm == "batch" else 0)
    assert all((layer.bias is None) == (norm == "batch") for layer in convolutions)


CIFAR10 = ((3, 32, 32), 10)


@pytest.mark.parametrize(
    ("fields", "millions", "source"), [("", 0.27, "He et al., Table 6"), ("+width=4", 4.3, "AGIC")]
)
def test_it_is_as_large_as_published(fields: str, millions: float, source: str) -> None:
    """3 x 3 convolutions and the dense layer count as 20 layers, the two shortcuts do not."""
    found = parse("model", f"resnet20{fields}").parameters(*CIFAR10)
    assert found / 1e6 == pytest.approx(millions, rel=0.02), source
    layers = list(parse("model", f"resnet20{fields}").build(*CIFAR10).modules())
    kernels = [layer.kernel_size for layer in layers if isinstance(layer, nn.Conv2d)]
    assert (kernels.count((3, 3)), kernels.count((1, 1))) == (19, 2)


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


IMAGENET = ((3, 224, 224), 1000)
IMAGES = torch.rand(4, 3, 40, 33, generator=torch.Generator().manual_seed(0))
TORCHVISIONS = {"resnet18": "resnet18+norm=batch+normalise=imagenet", "resnet50": "resnet50"}
NAMES = sorted(TORCHVISIONS)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_torchvisions_network_behind_its_normalisation(name: str) -> None:
    """With its parameters and buffers in torchvision's order."""
    ensure_operators()
    from torchvision import models

    ours = parse("model", TORCHVISIONS[name]).build((3, 40, 33), 1000)
    ours(IMAGES)
    ours.eval()
    with torch.device("meta"):
        theirs = models.get_model(name, weights=None).eval()
    shapes = [[(n, v.shape) for n, v in one.state_dict().items()] for one in (ours, theirs)]
    assert shapes[0] == shapes[1]
    theirs.load_state_dict(ours.state_dict(), assign=True)
    prepare = models.get_model_weights(name).IMAGENET1K_V1.transforms()
    mean, deviation = (torch.tensor(v)[:, None, None] for v in (prepare.mean, prepare.std))
    assert torch.equal(ours(IMAGES), theirs((IMAGES - mean) / deviation))


@pytest.mark.parametrize(
    ("name", "parameters", "billions"), [("resnet18", 11689512, 1.81), ("resnet50", 25557032, 4.09)]
)
def test_it_is_as_large_as_published_for_imagenet(
    name: str, parameters: int, billions: float
) -> None:
    """Torchvision states the number of parameters and billions of multiply-adds."""
    spec = parse("model", TORCHVISIONS[name])
    assert spec.parameters(*IMAGENET) == parameters
    assert spec.multiply_adds(*IMAGENET) / 1e9 == pytest.approx(billions, abs=0.005)


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, inputs: Tensor) -> Tensor:
        return self.factor * inputs


def test_a_block_activates_the_sum_of_body_and_shortcut() -> None:
    body = {"first": Times(2), "second": Times(-3)}
    block = ActivatedResidual(body, Times(5), nn.ReLU())
    inputs = torch.tensor([1.0, -1.0])
    assert block(inputs).tolist() == [0, 1]
    assert [name for name, _ in block.named_children()][:2] == ["first", "second"]


ROG = ((3, 128, 128), 1000)


def test_resnet_of_rog_has_the_authors_shapes() -> None:
    """Half the resolution after the stem, no pooling after it, 32,768 inputs to the classifier."""
    with torch.device("meta"):
        network = parse("model", "resnet18_rog").build(*ROG)
        values, sides = torch.rand(1, *ROG[0], device="meta"), []
        for layer in network:
            values = layer(values)
            sides += [values.shape[-1]] if isinstance(layer, Residual) else []
    assert sides == [64, 64, 32, 32, 16, 16, 8, 8]
    assert network[-1].weight.shape == (1000, 32_768)
    kinds = (nn.MaxPool2d, nn.BatchNorm2d)
    assert not [layer for layer in network.modules() if isinstance(layer, kinds)]
    assert all(name.endswith("weight") for name, _ in network.named_parameters())
    # 11.2 million weights in 17 convolutions of 3 x 3 or 7 x 7 and 3 shortcuts
    widths = [64, 128, 256, 512]
    within = sum(4 * 9 * w * w for w in widths) - sum(9 * w * w // 2 for w in widths[1:])
    total = 49 * 3 * 64 + within + sum(w * w // 2 for w in widths[1:]) + 32_768 * 1000
    assert parse("model", "resnet18_rog").parameters(*ROG) == total
