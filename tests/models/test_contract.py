"""Properties of every architecture."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gleak.attacks.matching.gradients import ClientTraining
from gleak.attacks.matching.layerwise import LayerwiseGradients
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from gleak.models.base import Activation

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "image": [(1, 12, 12), (3, 17, 10), (3, 45, 33)],
    "tabular": [(13,)],
}
NAMES = sorted(set(load("model")) - {"custom"})
VARIANTS = [
    "fc2+hidden=9",
    "fc2+precode=3",
    "lenet+width=3+dropout=0.5",
    "lenet5+dropout=0.5+downsampling=stride",
    "lenet+precode=3+width=3",
    "lenet5+activation=relu",
    "lenet128+dropout=0.5+downsampling=stride",
    "lenet128+width=2+hidden=7",
    "mlp+precode=3+dropout=0.5",
    "planted+model=resnet20~width=2+bins=5+activation=hardtanh",
    "planted_kernels+model=lenet~width=3+bins=5+groups=3",
    "resnet20+norm=none",
    "resnet20+precode=3+width=2",
    "resnet20+downsampling=false",
    "resnet18+norm=batch+width=3",
    "resnet18+precode=3+width=3",
    "resnet18_rog+precode=3+width=3",
    "resnet18_rog+norm=batch+width=3",
    "resnet50+norm=none+normalise=none+width=2",
    "vgg7+precode=3+width=3",
    "vgg7+norm=batch+width=3+hidden=5",
    "vgg7+downsampling=stride+width=3",
    "vgg16+dropout=0.5+normalise=none",
    "vgg16+downsampling=stride+norm=batch",
    "vgg_small+normalise=imagenet+width=3+hidden=5",
    "vgg_small+norm=batch+width=3",
    "vgg_small+downsampling=stride",
    "vgg_small+downsampling=stride+norm=batch",
]


def takes(text: str, modality: str, shape: tuple[int, ...]) -> bool:
    try:
        parse("model", text).check(modality, shape)
    except IncompatibleError:
        return False
    return True


CASES = [
    (text, shape)
    for text in [*NAMES, *VARIANTS]
    for modality, shapes in SHAPES.items()
    for shape in shapes
    if takes(text, modality, shape)
]


@pytest.fixture(autouse=True)
def on_no_device() -> Iterator[None]:
    """Use shapes without values, as drawing large networks takes seconds."""
    with torch.device("meta"):
        yield


def test_every_architecture_takes_some_of_the_shapes() -> None:
    assert {text for text, _ in CASES} == {*NAMES, *VARIANTS}


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_what_the_spec_says_of_a_network_is_what_is_built(
    name: str, shape: tuple[int, ...]
) -> None:
    spec = parse("model", name)
    network = spec.build(shape, 7)
    kinds = {nn.Conv2d: "convolution", nn.Linear: "dense"}
    called: list[str] = []
    for layer in network.modules():
        if type(layer) in kinds:
            layer.register_forward_hook(lambda layer, *_: called.append(kinds[type(layer)]))
    assert network(torch.rand(5, *shape)).shape == (5, 7)
    assert called[0] == spec.first_layer
    with FlopCounterMode(display=False) as counter:
        network.eval()(torch.rand(1, *shape))
    assert spec.multiply_adds(shape, 7) == counter.get_total_flops() / 2
    built = sum(parameter.numel() for parameter in network.parameters())
    assert spec.parameters(shape, 7) == built


@pytest.mark.parametrize("name", NAMES)
def test_refuses_a_modality_it_does_not_take(name: str) -> None:
    spec = parse("model", name)
    for modality, shapes in SHAPES.items():
        if modality in spec.modalities:
            spec.check(modality, shapes[-1])
        else:
            with pytest.raises(IncompatibleError, match=f"{name} takes .* not {modality}"):
                spec.check(modality, shapes[-1])


@pytest.mark.parametrize("name", [*NAMES, *VARIANTS])
def test_images_one_pixel_too_small_are_refused(name: str) -> None:
    spec = parse("model", name)
    least = spec.smallest_side
    spec.check("image", (3, least, least))
    network = spec.build((3, least, least), 7).eval()
    assert network(torch.rand(2, 3, least, least)).shape == (2, 7)
    refused = f"model {name} needs images of {least} pixels or more"
    with pytest.raises(IncompatibleError, match=re.escape(refused)):
        spec.check("image", (3, 99, least - 1))
    with pytest.raises(IncompatibleError, match=re.escape(f"{refused}, not (5,)")):
        spec.check("image", (5,))


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"planted", "planted_kernels"}))
@pytest.mark.parametrize("activation", Activation.__args__)
def test_activation_is_the_named_one(name: str, activation: str) -> None:
    spec = parse("model", f"{name}+activation={activation}")
    network = spec.build((1, spec.smallest_side, spec.smallest_side), 3)
    kinds = {type(layer).__name__.lower() for layer in network.modules()}
    assert activation.replace("_", "") in kinds


def test_lenet_has_the_parameters_of_dlgs_code() -> None:
    """For CIFAR images the dense layer in DLG's code has 768 inputs."""
    network = parse("model", "lenet").build((3, 32, 32), 100)
    shapes = [tuple(p.shape) for p in network.parameters() if p.ndim > 1]
    assert shapes == [(12, 3, 5, 5), (12, 12, 5, 5), (12, 12, 5, 5), (100, 768)]


@pytest.mark.parametrize("model", ["vgg16", "resnet50"])
def test_grey_images_are_not_normalised_as_colours(model: str) -> None:
    refused = rf"{model} normalises images of 3 channels.*normalise=none"
    with pytest.raises(IncompatibleError, match=refused):
        parse("model", model).check("image", (1, 32, 32))
    parse("model", f"{model}+normalise=none").check("image", (1, 32, 32))


@pytest.mark.parametrize(
    "model",
    [
        "resnet18",
        "resnet18+norm=batch",
        "resnet50",
        "resnet50+norm=none+activation=tanh+normalise=none",
        "vgg7",
        "vgg16",
        "vgg16+norm=batch",
        "vgg16+downsampling=stride",
        "vgg_small+width=2+hidden=6",
    ],
)
def test_gradients_are_split_layer_by_layer(model: str) -> None:
    network = parse("model", model).build((3, 32, 32), 4).eval()
    trained = frozenset(name for name, _ in network.named_parameters())
    training = ClientTraining(network, (3, 32, 32), 4, trained)
    owners = {name.rpartition(".")[0] for name in trained}
    assert LayerwiseGradients(training).layers.keys() == owners
