"""Gradients differentiated by a pass of tangents, compared with `torch.autograd`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from gleak.artifacts.protocol import Protocol
from gleak.attacks.matching.gradients import ClientTraining
from gleak.attacks.matching.layerwise import UnsplittableError
from gleak.attacks.matching.tangent_gradients import TangentGradients
from gleak.core.registry import parse
from gleak.models.resnet_layers import Residual
from gleak.models.sample_losses import sample_losses

CLASSES = 3
SHAPE = (2, 8, 8)


def training_of(network: nn.Module, loss: str = "cross_entropy") -> ClientTraining:
    trained = frozenset(name for name, value in network.named_parameters() if value.requires_grad)
    return ClientTraining(network.double().eval(), SHAPE, CLASSES, trained, Protocol(loss=loss))


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
    "smooth": lambda: convolutional(nn.Softplus()),
}


def expected_gradients(training: ClientTraining, inputs: Tensor, targets: Tensor) -> list[Tensor]:
    """Differentiate one victim's mean loss by its parameters, in the order of their names."""
    parameters = {
        name: training.model.get_parameter(name).detach().requires_grad_()
        for name in sorted(training.trained)
    }
    logits = functional_call(training.model, parameters, (inputs,))
    loss = sample_losses(training.protocol.loss, logits, targets).mean()
    return list(torch.autograd.grad(loss, list(parameters.values()), create_graph=True))


@pytest.mark.parametrize("loss", ["cross_entropy", "nll_raw"])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_and_their_slopes_are_those_of_autograd(name: str, loss: str) -> None:
    torch.manual_seed(0)
    training = training_of(NETWORKS[name](), loss)
    inputs = torch.rand(2, 3, *SHAPE, dtype=torch.double, requires_grad=True)
    targets = torch.rand(2, 3, CLASSES, dtype=torch.double).softmax(2).requires_grad_()
    observed = {key: training.model.get_parameter(key)[None] for key in training.trained}
    pieces = TangentGradients(training)(inputs, targets, observed)
    found = [piece.gradient for piece in sorted(pieces, key=lambda piece: piece.name)]
    rows = [expected_gradients(training, *batch) for batch in zip(inputs, targets, strict=True)]
    expected = [torch.stack(values) for values in zip(*rows, strict=True)]
    torch.testing.assert_close(found, expected)
    slopes = [
        torch.autograd.grad(sum(value.sin().sum() for value in values), (inputs, targets))
        for values in (found, expected)
    ]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("name", ["resnet20", "lenet"])
def test_a_victim_is_the_same_alone_and_among_others(name: str) -> None:
    """In single precision, to the last bit: with oneDNN's kernels and those of torch."""
    torch.manual_seed(0)
    network = parse("model", name).build(SHAPE, CLASSES)
    training = replace(training_of(network), model=network.float(), several_victims=True)
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
def test_other_trained_layers_are_refused(layer: nn.Module) -> None:
    network = nn.Sequential(layer, nn.Flatten(), nn.Linear(128, CLASSES))
    with pytest.raises(UnsplittableError, match="0"):
        TangentGradients(training_of(network))


def test_penalties_are_refused() -> None:
    network = parse("model", "resnet20+precode=4").build(SHAPE, CLASSES)
    with pytest.raises(UnsplittableError, match="penalty"):
        TangentGradients(training_of(network))
