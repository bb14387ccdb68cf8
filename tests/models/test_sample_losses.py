from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.models.differentiation import penalties, sample_losses
from gleak.models.layers import Penalised


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


def test_every_pass_through_a_penalised_layer_counts() -> None:
    layer = Squares()
    network = nn.Sequential(layer, nn.Sequential(nn.Identity(), layer))
    with penalties(network) as added:
        assert torch.equal(network(INPUTS), 4 * INPUTS)
    squares = INPUTS.square().sum(1)
    assert [each.tolist() for each in added] == [squares.tolist(), (4 * squares).tolist()]


def test_most_networks_add_nothing() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with penalties(network) as added:
        network(INPUTS)
    assert added == []


def test_passes_outside_of_the_block_do_not_count() -> None:
    network = nn.Sequential(Squares())
    with penalties(network) as added:
        pass
    network(INPUTS)
    assert added == []
    assert not network[0]._forward_hooks
