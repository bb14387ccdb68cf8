"""What random samples show of a network and a defence."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gleak.attacks.best import Best
from gleak.attacks.observed_network import (
    has_zero_columns,
    is_kinked,
    random_samples,
    reads_samples,
)
from gleak.testing.tiny_cells import TinyCells

RELU = "lenet+width=4+activation=relu"


def test_random_samples_are_always_the_same_and_of_the_networks_precision(cells: TinyCells) -> None:
    seen = cells.observe(cells.simulate(), Best())
    first = random_samples(seen, 3)
    assert first.shape == (3, 3, 8, 8)
    torch.rand(5)
    assert torch.equal(random_samples(seen.of_victim(1), 3), first)
    double = replace(seen, model=cells.observe(cells.simulate(), Best()).model.double())
    assert torch.equal(random_samples(double, 3), first.double())


@pytest.mark.parametrize(("model", "kinked"), [("lenet+width=4", False), (RELU, True)])
def test_a_relu_has_kinks_and_a_sigmoid_has_none(
    model: str, kinked: bool, cells: TinyCells
) -> None:
    assert is_kinked(cells.observe(cells.simulate(model=model), Best())) == kinked


@pytest.mark.parametrize("model", ["lenet+width=4", "vgg_small+width=8+hidden=24"])
def test_columns_of_zeros_are_those_of_soteria(model: str, cells: TinyCells) -> None:
    """Features that are zero by themselves, as after a ReLU, are not counted."""
    seen = {
        defense: cells.observe(cells.simulate(model=model, defense=defense), Best())
        for defense in ("none", "soteria+percentile=60", "gaussian")
    }
    found = {name: has_zero_columns(one) for name, one in seen.items()}
    assert found == {"none": False, "soteria+percentile=60": True, "gaussian": False}


@pytest.mark.parametrize(
    ("model", "client", "reads"),
    [
        ("mlp+hidden=16", "fedsgd+batch_size=16+victims=1", True),
        ("mlp+hidden=16", "fedsgd+batch_size=17+victims=1", False),
        ("lenet+width=4", "fedsgd+victims=1", False),
    ],
)
def test_a_dense_first_layer_with_a_neuron_for_each_sample_is_read(
    model: str, client: str, reads: bool, cells: TinyCells
) -> None:
    seen = cells.observe(cells.simulate(model=model, client=client), Best())
    assert reads_samples(seen) == reads
