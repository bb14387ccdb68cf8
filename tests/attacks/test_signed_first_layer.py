"""What the signs of the gradients of two dense layers tell, given the truth."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.attacks.signed_first_layer import (
    Estimate,
    Labelled,
    SignedBatch,
    check_two_layers,
    minimised,
)
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from tests.attacks.cases import Make

PATTERN = parse("attack", "activation_pattern")
SHAPE = (1, 2, 3)


@pytest.fixture
def victim(make_photo_case: Make) -> tuple[SignedBatch, torch.Tensor, torch.Tensor]:
    """Signs of one victim, its samples and labels."""
    seen, truth = make_photo_case(PATTERN, "fedsgd+batch_size=4+victims=2", "fc2", "signsgd")
    samples = torch.from_numpy(truth.inputs[0]).flatten(1).double()
    return SignedBatch.of(seen.of_victim(0)), samples, torch.from_numpy(truth.labels[0]).long()


def test_factors_and_inputs_have_the_signs_that_were_sent(
    victim: tuple[SignedBatch, torch.Tensor, torch.Tensor],
) -> None:
    batch, samples, labels = victim
    problem, outputs = Labelled.of(batch, labels), batch.outputs(samples)
    errors = problem.errors(outputs.relu())
    factors = problem.factors(errors, (outputs > 0).double())
    expected = batch.layer.slopes(batch.layer.scaling.of_samples(samples), outputs, labels).T
    torch.testing.assert_close(factors, expected, rtol=1e-3, atol=1e-5)
    sent = (factors @ batch.inputs(samples).double()).sign() == batch.signs
    assert sent.double().mean() > 0.999
    classes = (errors.T @ outputs.relu()).sign() == batch.class_signs
    assert classes.double().mean() > 0.999


def test_activities_are_found_from_the_samples_and_samples_from_the_activities(
    victim: tuple[SignedBatch, torch.Tensor, torch.Tensor],
) -> None:
    batch, samples, labels = victim
    problem, active = Labelled.of(batch, labels), (batch.outputs(samples) > 0).double()
    true = Estimate(samples, active, 0.02)
    doubt = 0.2 * batch.uncertain
    found = problem.activities(Estimate(samples, torch.ones_like(active), 0.02), doubt)
    assert (found == active)[:, batch.used].double().mean() > 0.97
    start = problem.compared(true)
    searched = problem.searched(Estimate(start, active, 0.02), doubt).samples
    ratios = [values / values.norm(dim=0) for values in (samples, start, searched)]
    alike = [(ratios[0] * one).sum(0).clamp(max=1).acos().median() for one in ratios[1:]]
    assert alike[1] < 0.15
    assert alike[1] < alike[0] / 2
    assert problem.likeliest_deviation(true) == 0.005


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 3)),
        nn.Sequential(
            nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)
        ),
    ],
)
def test_other_networks_are_refused(network: nn.Module) -> None:
    with pytest.raises(IncompatibleError, match="two dense layers with a ReLU"):
        check_two_layers(network, SHAPE, 3)


def test_two_layers_are_accepted() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    assert check_two_layers(network, SHAPE, 3) == ("3.weight", "3.bias")


def test_the_least_value_of_a_square_is_found() -> None:
    target = torch.arange(6.0, dtype=torch.float64).view(2, 3)
    codes, least = minimised(
        lambda point: (point - target).square().sum() + 2, torch.zeros_like(target)
    )
    torch.testing.assert_close(codes, target, rtol=1e-4, atol=1e-4)
    assert least == pytest.approx(2)
