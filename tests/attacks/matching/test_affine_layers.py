"""Affine layers in the single precision of an attack, compared with `torch.autograd`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.attacks.matching.affine_layers import affine_layer

LAYERS = {
    "dense": nn.Linear(5, 4),
    "dense in tokens": nn.Linear(5, 4),
    "dense without bias": nn.Linear(5, 4, bias=False),
    "convolution": nn.Conv2d(4, 6, 3, padding=1),
    "no padding": nn.Conv2d(4, 6, 3, bias=False),
    "not square": nn.Conv2d(4, 6, (3, 1), padding=(0, 2)),
    "strided": nn.Conv2d(4, 6, 3, stride=2, padding=1),
    "dilated": nn.Conv2d(4, 6, 3, dilation=2),
    "groups": nn.Conv2d(4, 6, 3, padding=1, groups=2),
    "more padding than the adjoint has": nn.Conv2d(4, 6, 1, padding=1),
    "batch norm": nn.BatchNorm2d(4),
}


@pytest.mark.parametrize("victims", [1, 3])
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_and_its_derivatives_are_those_of_torch(
    name: str, samples: int, victims: int
) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name].eval()
    shape = (7, 5) if "tokens" in name else (5,) if "dense" in name else (4, 9, 8)
    inputs = torch.rand(victims * samples, *shape, requires_grad=True)
    expected = layer(inputs)
    slopes = torch.randn_like(expected)
    (adjoint,) = torch.autograd.grad(expected, inputs, slopes, retain_graph=True)
    rows = [
        torch.autograd.grad(own, [*layer.parameters()], slope, retain_graph=True)
        for own, slope in zip(expected.chunk(victims), slopes.chunk(victims), strict=True)
    ]
    gradients = [torch.stack(values) for values in zip(*rows, strict=True)]
    affine, values = affine_layer(layer), inputs.detach()
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(affine.outputs(values), expected.detach(), **close)
    torch.testing.assert_close(affine.adjoint(slopes, values.shape), adjoint, **close)
    split = affine.split(values, victims), affine.split(slopes, victims)
    torch.testing.assert_close(affine.gradients(*split, victims), gradients, **close)
    moved = affine.outputs(values + 1) - affine.outputs(values)
    torch.testing.assert_close(affine.linear(torch.ones_like(values)), moved, **close)
    directions = [torch.randn_like(value) for value in gradients]
    derivative = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    stacked = affine.stacked(*directions)
    found = affine.by_victim(stacked.outputs(split[0]), victims)
    torch.testing.assert_close((found * slopes.view_as(found)).sum(), derivative, **close)
    moved = affine.by_victim(stacked.outputs(split[0] + 1), victims) - found
    product = stacked.adjoint(split[1], values.shape).sum()
    torch.testing.assert_close(product, (moved * slopes.view_as(moved)).sum(), **close)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 2, 3, padding_mode="circular"),
        nn.BatchNorm2d(2, affine=False),
        nn.BatchNorm2d(2, track_running_stats=False),
        nn.LayerNorm(2),
    ],
)
def test_other_layers_have_no_affine_form(layer: nn.Module) -> None:
    assert affine_layer(layer) is None
