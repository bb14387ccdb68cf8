from __future__ import annotations

import torch
from torch import Tensor, nn

from gleak.models.penalties import Penalised, penalties

INPUTS = torch.arange(6.0).reshape(3, 2)


class Squares(Penalised):
    """Twice the inputs, whose squares are the penalty."""

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
