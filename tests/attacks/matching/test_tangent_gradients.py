"""Gradients differentiated by a pass of tangents, compared with `torch.autograd`."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gleak.attacks.matching.affine_layers import affine_layer
from gleak.attacks.matching.layerwise import UnsplittableError
from gleak.attacks.matching.tangent_gradients import TangentGradients
from gleak.core.registry import parse
from gleak.models.layers import Residual
from tests.attacks.matching import slopes

CLASSES = 3
SHAPE = (2, 8, 8)


def training_of(
    network: nn.Module, loss: str = "cross_entropy", **fields: object
) -> slopes.ClientTraining:
    trained = frozenset(name for name, value in network.named_parameters() if value.requires_grad)
    return slopes.training_of(network.eval(), SHAPE, CLASSES, loss, trained=trained, **fields)


def frozen_stem() -> nn.Module:
    network = convolutional(nn.Sigmoid())
    network[0].requires_grad_(False)
    return network


def convolutional(activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1),
        activation,
        nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2, bias=False),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def normalised() -> nn.Module:
    """Return a residual network whose statistics and scales are no longer those of a new one."""
    norm = nn.BatchNorm2d(2)
    for value in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        nn.init.uniform_(value, 0.5, 2.0)
    body = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), norm, nn.ReLU())
    return nn.Sequential(
        Residual(body, nn.Identity()), nn.Flatten(), nn.Linear(128, CLASSES, bias=False)
    )


class Functional(nn.Module):
    """Functions, methods and buffers between layers, and a value that is used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(128, CLASSES)
        self.inner = nn.Linear(128, 128)
        self.register_buffer("mean", torch.tensor(0.3))

    def forward(self, inputs: Tensor) -> Tensor:
        values = (inputs - self.mean).flatten(1)
        values = values * torch.tanh(self.inner(values)) + 2 * values
        values = torch.cat([values[:, :64], values[:, 64:].sin()], dim=1)
        return self.dense(values)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "frozen stem": frozen_stem,
    "functional": Functional,
    "normalised": normalised,
    "rectified": lambda: convolutional(nn.ReLU()),
    "resnet20": lambda: parse("model", "resnet20").build(SHAPE, CLASSES),
    "sigmoid": lambda: convolutional(nn.Sigmoid()),
    "smooth": lambda: convolutional(nn.Softplus()),
    "tanh": lambda: convolutional(nn.Tanh()),
}


@pytest.mark.usefixtures("kernels_of_either_device")
@pytest.mark.parametrize("loss", ["cross_entropy", "nll_raw"])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_and_their_slopes_are_those_of_autograd(name: str, loss: str):
    torch.manual_seed(0)
    training = training_of(NETWORKS[name]().double(), loss)
    given = slopes.dummies(2, 3, SHAPE, CLASSES)
    observed = {key: training.model.get_parameter(key)[None] for key in training.trained}
    pieces = TangentGradients(training)(*given, observed)
    found = {piece.name: piece.gradient for piece in pieces}
    plain = slopes.plain_gradients(training.model, loss, *given)
    expected = {key: plain[key] for key in training.trained}
    torch.testing.assert_close(found, expected)
    derivatives = [
        torch.autograd.grad(sum(values[key].sin().sum() for key in observed), given)
        for values in (found, expected)
    ]
    torch.testing.assert_close(*derivatives)


@pytest.mark.parametrize("name", ["resnet20", "lenet"])
def test_a_victim_is_the_same_alone_and_among_others(name: str):
    """In single precision, to the last bit: with oneDNN's kernels and those of torch."""
    torch.manual_seed(0)
    training = training_of(parse("model", name).build(SHAPE, CLASSES), several_victims=True)
    method, inputs = TangentGradients(training), torch.rand(5, 1, *SHAPE)
    targets = torch.rand(5, 1, CLASSES).softmax(2)
    observed = {key: training.model.get_parameter(key)[None] for key in training.trained}

    def gradients_and_slopes(rows: slice) -> list[Tensor]:
        samples = inputs[rows].clone().requires_grad_()
        found = [piece.gradient for piece in method(samples, targets[rows], observed)]
        slopes = torch.autograd.grad(sum(value.sin().sum() for value in found), samples)
        return [*found, *slopes]

    together = gradients_and_slopes(slice(0, 5))
    for rows in (slice(2, 3), slice(1, 3), slice(0, 4)):
        for one, several in zip(gradients_and_slopes(rows), together, strict=True):
            assert torch.equal(one, several[rows])


@pytest.mark.parametrize("layer", [nn.GroupNorm(1, 2), nn.Conv2d(2, 2, 3, padding="same")])
def test_other_trained_layers_are_refused(layer: nn.Module):
    network = nn.Sequential(layer, nn.Flatten(), nn.Linear(128, CLASSES))
    with pytest.raises(UnsplittableError, match="0"):
        TangentGradients(training_of(network))


def test_penalties_are_refused():
    with pytest.raises(UnsplittableError, match="penalty"):
        TangentGradients(training_of(parse("model", "resnet20+precode=4").build(SHAPE, CLASSES)))


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


@pytest.mark.parametrize("form", ["general", "suited"])
@pytest.mark.parametrize("victims", [1, 3])
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_and_its_derivatives_are_those_of_torch(
    name: str, samples: int, victims: int, form: str
):
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
    affine = affine_layer(layer)
    if form == "suited":
        affine = affine.suited(inputs)
    values, ones = affine.taken(inputs.detach()), affine.taken(torch.ones_like(inputs))
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(affine.outputs(values), expected.detach(), **close)
    found = affine.given(affine.adjoint(slopes, inputs.shape))
    torch.testing.assert_close(found, adjoint, **close)
    split = affine.split(values, victims), affine.split(slopes, victims)
    torch.testing.assert_close(affine.gradients(*split, victims), gradients, **close)
    moved = affine.outputs(values + ones) - affine.outputs(values)
    torch.testing.assert_close(affine.linear(ones), moved, **close)
    directions = [torch.randn_like(value) for value in gradients]
    derivative = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    stacked = affine.stacked(*directions)
    found = affine.by_victim(stacked.outputs(split[0]), victims)
    torch.testing.assert_close((found * slopes.view_as(found)).sum(), derivative, **close)
    others = affine.split(values + ones, victims)
    moved = affine.by_victim(stacked.outputs(others), victims) - found
    product = (stacked.adjoint(split[1], inputs.shape) * affine.split(ones, victims)).sum()
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
def test_other_layers_have_no_affine_form(layer: nn.Module):
    assert affine_layer(layer) is None


def test_those_of_a_deep_network_can_be_copied():
    """Nodes of a trace form a chain, whose copy would recurse through the whole network."""
    deep = nn.Sequential(*(Flipped() for _ in range(400)), nn.Flatten(), nn.Linear(12, CLASSES))
    gradients = TangentGradients(training_of(deep))
    copied = copy.deepcopy(gradients)
    assert copied.model is not gradients.model
    assert len(copied.steps) == len(gradients.steps) > 400


class Flipped(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return torch.flip(inputs, (1,))
