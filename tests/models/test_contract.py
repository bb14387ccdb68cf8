"""What holds for every architecture."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gleak.errors import FitError
from gleak.models.base import Activation
from gleak.registry import load, parse

SHAPES = {"image": [(1, 12, 12), (3, 17, 10)], "tabular": [(13,)]}
NAMES = sorted(set(load("model")) - {"custom"})
VARIANTS = [
    "fc2+hidden=9",
    "lenet+width=3+dropout=0.5",
    "mlp+dropout=0.5",
    "resnet20+norm=none",
    "resnet20+width=2",
    "resnet20+downsampling=false",
]
CASES = [
    (text, shape)
    for text in [*NAMES, *VARIANTS]
    for modality in sorted(parse("model", text).modalities)
    for shape in SHAPES[modality]
]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_maps_samples_to_one_output_a_class(name: str, shape: tuple[int, ...]) -> None:
    network = parse("model", name).build(shape, 7)
    assert network(torch.rand(5, *shape)).shape == (5, 7)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_first_layer_is_of_the_kind_it_says(name: str, shape: tuple[int, ...]) -> None:
    spec = parse("model", name)
    network = spec.build(shape, 7)
    kinds = {nn.Conv2d: "convolution", nn.Linear: "dense"}
    called: list[str] = []
    for layer in network.modules():
        if type(layer) in kinds:
            layer.register_forward_hook(lambda layer, *_: called.append(kinds[type(layer)]))
    network(torch.rand(2, *shape))
    assert called[0] == spec.first_layer


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_multiply_adds_are_those_torch_counts(name: str, shape: tuple[int, ...]) -> None:
    spec = parse("model", name)
    with FlopCounterMode(display=False) as counter:
        spec.build(shape, 7)(torch.rand(1, *shape))
    assert spec.multiply_adds(shape, 7) == counter.get_total_flops() / 2


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_parameters_are_those_that_are_built(name: str, shape: tuple[int, ...]) -> None:
    spec = parse("model", name)
    built = sum(parameter.numel() for parameter in spec.build(shape, 7).parameters())
    assert spec.parameters(shape, 7) == built


@pytest.mark.parametrize("name", NAMES)
def test_refuses_a_modality_it_does_not_take(name: str) -> None:
    spec = parse("model", name)
    for modality, shapes in SHAPES.items():
        if modality in spec.modalities:
            spec.check(modality, shapes[0])
        else:
            with pytest.raises(FitError, match=f"{name} takes .* not {modality}"):
                spec.check(modality, shapes[0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("activation", Activation.__args__)
def test_activation_is_the_named_one(name: str, activation: str) -> None:
    network = parse("model", f"{name}+activation={activation}").build((1, 8, 8), 3)
    kinds = {type(layer).__name__.lower() for layer in network.modules()}
    assert activation.replace("_", "") in kinds


def test_lenet_refuses_images_under_four_pixels() -> None:
    with pytest.raises(FitError, match="4 pixels or more"):
        parse("model", "lenet").check("image", (3, 3, 9))


def test_lenet_has_the_parameters_of_dlgs_code() -> None:
    """On CIFAR images the dense layer of DLG's own file takes 768 values."""
    network = parse("model", "lenet").build((3, 32, 32), 100)
    shapes = [tuple(p.shape) for p in network.parameters() if p.ndim > 1]
    assert shapes == [(12, 3, 5, 5), (12, 12, 5, 5), (12, 12, 5, 5), (100, 768)]
