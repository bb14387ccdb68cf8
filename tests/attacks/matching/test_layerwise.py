"""Results of a victim do not depend on the number of victims computed together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gleak.attacks.matching.kernels import padded_rows
from gleak.attacks.run_attack import reconstruct
from gleak.core.registry import parse

Make = Callable[..., Any]

ITERATIONS = 50
ATTACKS = {
    "lbfgs": f"cpl+iterations={ITERATIONS}+labels=known+restarts=0",
    "line_search": "cpl+iterations=30+labels=known+optimizer=lbfgs_line_search+restarts=0",
    "adam": f"invertgrad+iterations={ITERATIONS}+labels=known",
    "sgd": "cpl+iterations=10+labels=known+optimizer=sgd~lr=0.1",
    "adagrad": "cpl+iterations=10+labels=known+optimizer=adagrad",
    "gauss_newton": "cpl+iterations=3+labels=known+optimizer=gauss_newton~products=30",
}


@pytest.mark.parametrize("optimizer", ATTACKS)
@pytest.mark.parametrize("model", ["lenet+width=4", "mlp+hidden=16"])
def test_a_victim_is_the_same_alone_and_among_sixteen(
    model: str, optimizer: str, make_observation: Make
):
    observation, _, _ = make_observation(model, victims=16, samples=1)
    attack = parse("attack", ATTACKS[optimizer])
    together = reconstruct(attack, observation, 0)
    for row in (0, 15):
        alone = reconstruct(attack, observation.of_victim(row), 0)
        np.testing.assert_allclose(alone.inputs[0], together.inputs[row], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Linear(6, 3), (6,)), (nn.Conv2d(2, 3, 3), (2, 5, 5))]
)
def test_filling_up_changes_no_output_and_no_derivative(layer: nn.Module, shape: tuple[int, ...]):
    network = nn.Sequential(layer.double(), nn.Sigmoid())
    inputs = torch.rand(1, *shape, dtype=torch.double, requires_grad=True)
    expected = network(inputs)
    with padded_rows(network, torch.empty(1)):
        assert "forward" in vars(layer)
        found = network(inputs)
    assert "forward" not in vars(layer)
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad(out.square().sum(), inputs)[0] for out in (found, expected)]
    torch.testing.assert_close(*slopes)
