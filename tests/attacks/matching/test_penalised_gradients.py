"""Dummy gradients of networks with penalised layers, compared with an explicit term in the loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from gleak.attacks.matching.distances import L2
from gleak.attacks.matching.gradients import (
    ClientTraining,
    Gradients,
    LoopedGradients,
    VmappedGradients,
)
from gleak.attacks.matching.layerwise import LayerwiseGradients
from gleak.core.registry import parse
from tests.attacks.matching.slopes import choose_gradients

SHAPE = (2, 16, 16)
CLASSES, VICTIMS, SAMPLES = 4, 2, 3
BOTTLENECK, BETA = 3, 0.7
FIELDS = f"+precode={BOTTLENECK}+beta={BETA}+activation=tanh"
NAMES = ["fc2+hidden=5", "lenet+width=2", "lenet128+width=2+hidden=5", "vgg_small+width=2+hidden=5"]
WAYS = [LayerwiseGradients, VmappedGradients, LoopedGradients]


def network(name: str) -> nn.Module:
    model = parse("model", f"{name}{FIELDS}").build(SHAPE, CLASSES)
    stream = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3, generator=stream)
    return model.double().eval()


def training_of(model: nn.Module, shape: tuple[int, ...]) -> ClientTraining:
    trained = frozenset(name for name, _ in model.named_parameters())
    return ClientTraining(model, shape, CLASSES, trained)


def explicit_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Compute cross-entropy and divergence of one victim's batch from the encoder's outputs."""
    statistics: list[Tensor] = []
    (encoder,) = (layer for name, layer in model.named_modules() if name.endswith("encoder"))
    hook = encoder.register_forward_hook(lambda *passed: statistics.append(passed[2]))
    entropy = functional.cross_entropy(model(inputs), targets)
    hook.remove()
    means, values = statistics[0].split(BOTTLENECK, 1)
    divergence = kl_divergence(Normal(means, functional.softplus(values)), Normal(0.0, 1.0))
    return entropy + BETA * divergence.sum(1).mean()


def batch() -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(1)
    inputs = torch.rand(VICTIMS, SAMPLES, *SHAPE, generator=stream, dtype=torch.double)
    logits = torch.randn(VICTIMS, SAMPLES, CLASSES, generator=stream, dtype=torch.double)
    return inputs.requires_grad_(), logits.softmax(2).requires_grad_()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_first_and_second_derivatives_are_those_of_the_explicit_loss(
    name: str, way: Callable[..., Gradients]
):
    model, (inputs, soft) = network(name), batch()
    rows = [
        torch.autograd.grad(
            explicit_loss(model, *victim), list(model.parameters()), create_graph=True
        )
        for victim in zip(inputs, soft, strict=True)
    ]
    names = [key for key, _ in model.named_parameters()]
    expected = dict(zip(names, map(torch.stack, zip(*rows, strict=True)), strict=True))
    observed = {key: 0.1 * torch.ones_like(value) for key, value in expected.items()}
    pieces = way(training_of(model, SHAPE))(inputs, soft, observed)
    for piece in pieces:
        formed = piece.within(torch.ones_like(piece.target)).gradient
        torch.testing.assert_close(formed, expected[piece.name])
    assert {piece.name for piece in pieces} == set(names)
    reference = sum((expected[key] - observed[key]).square().sum() for key in names)
    slopes = torch.autograd.grad(L2().measure(pieces).sum(), (inputs, soft))
    for slope, true in zip(slopes, torch.autograd.grad(reference, (inputs, soft)), strict=True):
        torch.testing.assert_close(slope, true)


@pytest.mark.parametrize("name", [*NAMES, "resnet18+width=2", "resnet20"])
def test_networks_with_a_variational_block_are_split_by_layers(name: str):
    model = parse("model", f"{name}{FIELDS}").build((2, 32, 32), CLASSES).eval()
    gradients = choose_gradients(training_of(model, (2, 32, 32)))
    assert isinstance(gradients, LayerwiseGradients)
    assert not any(layer._forward_hooks for layer in model.modules())
