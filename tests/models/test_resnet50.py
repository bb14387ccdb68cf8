from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gleak.errors import FitError
from gleak.matching.gradients import LayerwiseGradients
from gleak.models.resnet_layers import ActivatedResidual
from gleak.registry import parse
from gleak.runtime.torchvision_ops import ensure_operators

IMAGENET = ((3, 224, 224), 1000)
IMAGES = torch.rand(4, 3, 40, 33, generator=torch.Generator().manual_seed(0))


def test_it_is_torchvisions_network_behind_its_normalisation() -> None:
    ensure_operators()
    from torchvision.models import ResNet50_Weights, resnet50

    ours = parse("model", "resnet50").build((3, 40, 33), 1000)
    ours(IMAGES)
    ours.eval()
    with torch.device("meta"):
        theirs = resnet50(weights=None).eval()
    theirs.load_state_dict(ours.state_dict(), assign=True)
    prepare = ResNet50_Weights.IMAGENET1K_V2.transforms()
    mean, deviation = (torch.tensor(v)[:, None, None] for v in (prepare.mean, prepare.std))
    assert torch.equal(ours(IMAGES), theirs((IMAGES - mean) / deviation))


def test_its_parameters_and_buffers_are_in_torchvisions_order() -> None:
    ensure_operators()
    from torchvision.models import resnet50

    with torch.device("meta"):
        networks = resnet50(weights=None), parse("model", "resnet50").build(*IMAGENET)
    theirs, ours = ([(n, v.shape) for n, v in one.state_dict().items()] for one in networks)
    assert ours == theirs


def test_it_is_as_large_as_published() -> None:
    """Torchvision states the number of parameters, and 4.09 billion multiply-adds."""
    spec = parse("model", "resnet50")
    assert spec.parameters(*IMAGENET) == 25557032
    assert spec.multiply_adds(*IMAGENET) / 1e9 == pytest.approx(4.09, abs=0.005)


def test_it_has_fifty_layers_and_a_shortcut_for_each_stage() -> None:
    """Shortcuts do not count."""
    with torch.device("meta"):
        layers = dict(parse("model", "resnet50").build(*IMAGENET).named_modules())
    trained = [n for n, layer in layers.items() if isinstance(layer, nn.Conv2d | nn.Linear)]
    shortcuts = [name for name in trained if "downsample" in name]
    assert len(trained) - len(shortcuts) == 50
    assert shortcuts == [f"layer{stage}.0.downsample.0" for stage in range(1, 5)]


@pytest.mark.parametrize(("side", "sides"), [(32, [8, 4, 2, 1]), (45, [12, 6, 3, 2])])
def test_stages_halve_the_image(side: int, sides: list[int]) -> None:
    with torch.device("meta"):
        network = parse("model", "resnet50").build((3, side, side), 10)
        values, shapes = torch.rand(2, 3, side, side), {}
        for name, layer in network.named_children():
            values = layer(values)
            shapes[name] = tuple(values.shape[1:])
    found = [shapes[f"layer{stage}"] for stage in range(1, 5)]
    assert found == [(c, s, s) for c, s in zip((256, 512, 1024, 2048), sides, strict=True)]


@pytest.mark.parametrize("fields", ["", "+norm=none", "+activation=tanh", "+normalise=none"])
def test_gradients_are_split_layer_by_layer(fields: str) -> None:
    with torch.device("meta"):
        network = parse("model", f"resnet50{fields}").build((3, 32, 32), 4).eval()
    assert LayerwiseGradients(network, "cross_entropy").serves((3, 32, 32))


def test_batch_norm_is_left_out_if_asked_to() -> None:
    with torch.device("meta"):
        network = parse("model", "resnet50+norm=none").build(*IMAGENET)
    assert not network.state_dict().keys() & {name for name, _ in network.named_buffers()}
    assert all(m.bias is not None for m in network.modules() if isinstance(m, nn.Conv2d))


def test_grey_images_are_not_normalised_as_colours() -> None:
    grey = (1, 32, 32)
    with pytest.raises(FitError, match=r"resnet50 normalises images of 3 channels.*normalise=none"):
        parse("model", "resnet50").check("image", grey)
    parse("model", "resnet50+normalise=none").check("image", grey)


class Times(nn.Module):
    """The inputs, multiplied."""

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
