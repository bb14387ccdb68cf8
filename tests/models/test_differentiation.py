"""Losses of samples, penalties and kinks; per-sample gradients are tested with the attacks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.models.differentiation import has_kinks, penalties, sample_losses
from gleak.models.layers import Penalised
from tests.zoo import CLASSES, NETWORKS, SHAPE, Function, behind_convolution


def behind(compute: Callable[[Tensor], Tensor], features: int = 144) -> Callable[[], nn.Module]:
    return behind_convolution(Function(compute), features=features)


def steep() -> nn.Module:
    """A smooth network, many of whose derivatives are zero in single precision."""
    network = behind_convolution(nn.Tanh())()
    network[0].weight.data *= 10
    return network


def late() -> nn.Module:
    network = behind_convolution(nn.Sigmoid())()
    network.insert(2, nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.ReLU()))
    return network


KINKED = {
    "normalised first": behind(lambda x: functional.layer_norm(x, x.shape[1:]).relu()),
    "by multiplication": behind(lambda x: x * (x > 0)),
    "maximum of channels": behind(lambda x: x.amax(1), 36),
    "overwritten": NETWORKS["overwrites activations"],
    "transformer": NETWORKS["transformer layer"],
    "in a later layer": late,
}
SMOOTH = {
    "pixels that are left out": behind_convolution(nn.Sigmoid(), nn.AvgPool2d(4), features=4),
    "saturated": steep,
    "GELU": NETWORKS["GELU"],
    "LSTM": NETWORKS["LSTM"],
    "heads": NETWORKS["heads"],
}


@pytest.mark.parametrize(
    ("build", "kinked"),
    [*((build, True) for build in KINKED.values()), *((build, False) for build in SMOOTH.values())],
    ids=[*KINKED, *SMOOTH],
)
def test_kinks_are_seen_in_what_a_network_computes(
    build: Callable[[], nn.Module], kinked: bool
) -> None:
    torch.manual_seed(0)
    network = build().eval()
    assert network(torch.rand(1, *SHAPE)).shape == (1, CLASSES)
    assert has_kinks(network, torch.rand(6, *SHAPE)) is kinked


def test_a_network_without_derivatives_by_its_samples_has_no_kinks() -> None:
    network = behind(lambda x: x.detach().relu())().requires_grad_(False)
    assert not has_kinks(network, torch.rand(6, *SHAPE))


def test_cross_entropy_is_torchs_on_hard_and_soft_labels() -> None:
    stream = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, generator=stream)
    soft = torch.rand(6, 5, generator=stream).softmax(1)
    hard = functional.one_hot(torch.arange(6) % 5, 5).float()
    for targets in (soft, hard):
        expected = functional.cross_entropy(logits, targets, reduction="none")
        torch.testing.assert_close(sample_losses("cross_entropy", logits, targets), expected)


def test_nll_raw_is_minus_the_labels_logit() -> None:
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 4, 2, 2])
    losses = sample_losses("nll_raw", logits, functional.one_hot(labels, 5).float())
    assert torch.equal(losses, -logits[torch.arange(4), labels])


INPUTS = torch.arange(6.0).reshape(3, 2)


class Squares(Penalised):
    """Layer that doubles its inputs, with their squares as penalty."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * inputs

    def penalty(self, inputs: Tensor) -> Tensor:
        return inputs.square().sum(1)


def test_every_pass_through_a_penalised_layer_in_the_block_counts() -> None:
    layer = Squares()
    network = nn.Sequential(layer, nn.Sequential(nn.Identity(), layer))
    with penalties(network) as added:
        assert torch.equal(network(INPUTS), 4 * INPUTS)
    network(INPUTS)
    squares = INPUTS.square().sum(1)
    assert [each.tolist() for each in added] == [squares.tolist(), (4 * squares).tolist()]
