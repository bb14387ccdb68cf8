"""Residual networks for ImageNet, beside torchvision's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.matching.gradients import ClientTraining
from gleak.matching.layerwise import LayerwiseGradients
from gleak.runtime.torchvision_ops import ensure_operators

IMAGENET = ((3, 224, 224), 1000)
IMAGES = torch.rand(4, 3, 40, 33, generator=torch.Generator().manual_seed(0))
TORCHVISIONS = {"resnet18": "resnet18+norm=batch+normalise=imagenet", "resnet50": "resnet50"}
NAMES = sorted(TORCHVISIONS)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_torchvisions_network_behind_its_normalisation(name: str) -> None:
    ensure_operators()
    from torchvision import models

    ours = parse("model", TORCHVISIONS[name]).build((3, 40, 33), 1000)
    ours(IMAGES)
    ours.eval()
    with torch.device("meta"):
        theirs = models.get_model(name, weights=None).eval()
    theirs.load_state_dict(ours.state_dict(), assign=True)
    prepare = models.get_model_weights(name).IMAGENET1K_V1.transforms()
    mean, deviation = (torch.tensor(v)[:, None, None] for v in (prepare.mean, prepare.std))
    assert torch.equal(ours(IMAGES), theirs((IMAGES - mean) / deviation))


@pytest.mark.parametrize("name", NAMES)
def test_its_parameters_and_buffers_are_in_torchvisions_order(name: str) -> None:
    ensure_operators()
    from torchvision import models

    with torch.device("meta"):
        theirs = models.get_model(name, weights=None)
        ours = parse("model", TORCHVISIONS[name]).build(*IMAGENET)
    expected, found = (
        [(n, v.shape) for n, v in one.state_dict().items()] for one in (theirs, ours)
    )
    assert found == expected


@pytest.mark.parametrize(
    ("name", "parameters", "billions"), [("resnet18", 11689512, 1.81), ("resnet50", 25557032, 4.09)]
)
def test_it_is_as_large_as_published(name: str, parameters: int, billions: float) -> None:
    """Torchvision states the number of parameters, and billions of multiply-adds."""
    spec = parse("model", TORCHVISIONS[name])
    assert spec.parameters(*IMAGENET) == parameters
    assert spec.multiply_adds(*IMAGENET) / 1e9 == pytest.approx(billions, abs=0.005)


@pytest.mark.parametrize(("name", "count", "first"), [("resnet18", 18, 2), ("resnet50", 50, 1)])
def test_its_layers_are_counted_without_the_shortcuts_of_its_stages(
    name: str, count: int, first: int
) -> None:
    """Bottlenecks widen in the first stage too; basic blocks have nothing to change there."""
    with torch.device("meta"):
        layers = dict(parse("model", name).build(*IMAGENET).named_modules())
    trained = [n for n, layer in layers.items() if isinstance(layer, nn.Conv2d | nn.Linear)]
    shortcuts = [name for name in trained if "downsample" in name]
    assert len(trained) - len(shortcuts) == count
    assert shortcuts == [f"layer{stage}.0.downsample.0" for stage in range(first, 5)]


@pytest.mark.parametrize("width", [64, 3])
@pytest.mark.parametrize(("name", "widening"), [("resnet18", 1), ("resnet50", 4)])
@pytest.mark.parametrize(("side", "sides"), [(32, [8, 4, 2, 1]), (45, [12, 6, 3, 2])])
def test_stages_halve_the_image_and_double_the_width(
    side: int, sides: list[int], name: str, widening: int, width: int
) -> None:
    with torch.device("meta"):
        network = parse("model", f"{name}+width={width}").build((3, side, side), 10)
        values, shapes = torch.rand(2, 3, side, side), {}
        for layer_name, layer in network.named_children():
            values = layer(values)
            shapes[layer_name] = tuple(values.shape[1:])
    found = [shapes[f"layer{stage}"] for stage in range(1, 5)]
    assert found == [(widening * width * 2**n, s, s) for n, s in enumerate(sides)]


@pytest.mark.parametrize(
    "model",
    [*NAMES, "resnet18+norm=batch", "resnet50+norm=none+activation=tanh+normalise=none"],
)
def test_gradients_are_split_layer_by_layer(model: str) -> None:
    with torch.device("meta"):
        network = parse("model", model).build((3, 32, 32), 4).eval()
    trained = frozenset(name for name, _ in network.named_parameters())
    training = ClientTraining(network, "cross_entropy", (3, 32, 32), 4, trained)
    owners = {name.rpartition(".")[0] for name in trained}
    assert LayerwiseGradients(training).layers.keys() == owners


@pytest.mark.parametrize("model", ["resnet18", "resnet50+norm=none"])
def test_without_batch_norm_all_convolutions_have_biases(model: str) -> None:
    with torch.device("meta"):
        network = parse("model", model).build(*IMAGENET)
    assert not network.state_dict().keys() & {name for name, _ in network.named_buffers()}
    assert all(m.bias is not None for m in network.modules() if isinstance(m, nn.Conv2d))


def test_grey_images_are_not_normalised_as_colours() -> None:
    grey = (1, 32, 32)
    with pytest.raises(
        IncompatibleError, match=r"resnet50 normalises images of 3 channels.*normalise=none"
    ):
        parse("model", "resnet50").check("image", grey)
    for model in ("resnet50+normalise=none", "resnet18"):
        parse("model", model).check("image", grey)
