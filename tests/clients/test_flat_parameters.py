"""Parameters as parts of vectors, and networks that compute with others than their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.clients.flat_parameters import FlatParameters, replaced_parameters


def test_vectors_are_the_parameters_and_share_memory_with_their_parts() -> None:
    """One vector for each data type; parameters without values have empty parts."""
    values = {
        "a": torch.rand(2, 3),
        "b": torch.rand(4, dtype=torch.float64),
        "none": torch.empty(0, 5),
        "c": torch.rand(1),
    }
    flat = FlatParameters.of(values)
    vectors = flat.flattened(values)
    assert sorted(len(vector) for vector in vectors.values()) == [4, 7]
    whole = flat.whole(vectors)
    assert whole.keys() == values.keys()
    assert all(torch.equal(whole[name], value) for name, value in values.items())
    for vector in vectors.values():
        vector.add_(1)
    assert all(torch.equal(whole[name], value + 1) for name, value in values.items())


def test_a_network_computes_with_other_parameters_in_the_block_alone() -> None:
    """Weights that two layers share stay shared; a failure in the block restores its own, too."""
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.LSTM(3, 2))
    network[1].weight = network[0].weight
    own, inputs = dict(network.named_parameters()), torch.rand(4, 3)
    before = network(inputs)[0]
    others = {name: nn.Parameter(torch.rand_like(value)) for name, value in own.items()}
    with replaced_parameters(network, others):
        assert network[1].weight is others["0.weight"]
        found = network(inputs)[0]
    expected = torch.func.functional_call(network, others, (inputs,))[0]
    torch.testing.assert_close(found, expected)
    with pytest.raises(ZeroDivisionError), replaced_parameters(network, others):
        raise ZeroDivisionError
    assert all(value is own[name] for name, value in network.named_parameters())
    assert torch.equal(network(inputs)[0], before)
