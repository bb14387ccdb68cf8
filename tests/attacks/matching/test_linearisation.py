"""Products with a Jacobian that is never formed, compared with the formed one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gleak.attacks.matching.gauss_newton import Linearisation, damped_step


def curved(point: Tensor) -> Tensor:
    """Compute three functions of four unknowns; the last one is constant."""
    return torch.stack([point.prod(), point.sin() @ point, point.new_ones(())])


@pytest.fixture
def point() -> Tensor:
    return torch.tensor([0.3, -1.2, 0.7, 2.0], dtype=torch.double)


def test_products_are_those_with_the_formed_jacobian(point: Tensor) -> None:
    here = Linearisation(curved, point)
    formed = torch.autograd.functional.jacobian(curved, point)
    for direction in torch.eye(4, dtype=torch.double):
        torch.testing.assert_close(here.times(direction), formed @ direction)
    for weights in torch.eye(3, dtype=torch.double):
        torch.testing.assert_close(here.transposed(weights), formed.T @ weights)
    torch.testing.assert_close(here.slope, formed.T @ curved(point))
    torch.testing.assert_close(here.moved(point), curved(2 * point))


@pytest.mark.parametrize("damping", [1e-3, 1.0, 1e3])
def test_a_step_solves_the_damped_equations(point: Tensor, damping: float) -> None:
    here = Linearisation(curved, point)
    formed = torch.autograd.functional.jacobian(curved, point)
    system = formed.T @ formed + damping * torch.eye(4)
    step = damped_step(here, here.slope, damping, 1e-12, 50)
    torch.testing.assert_close(step, -torch.linalg.solve(system, here.slope))


def test_a_step_ends_at_the_stated_accuracy(point: Tensor) -> None:
    here = Linearisation(curved, point)

    def remainder(accuracy: float, most: int) -> float:
        step = damped_step(here, here.slope, 1e-6, accuracy, most)
        left = here.transposed(here.times(step)) + 1e-6 * step + here.slope
        return float(left.norm() / here.slope.norm())

    assert 1e-9 < remainder(0.5, 50) <= 0.5
    assert remainder(1e-9, 50) <= 1e-9 < remainder(1e-9, 1)
