from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gleak.attacks.unmixing.relu_patterns import pattern_columns, remaining_mixture
from gleak.attacks.unmixing.relu_sparsity import Factors, factorise

SAMPLES, FEATURES, NEURONS = 6, 40, 96


@dataclass(frozen=True)
class Case:
    """ReLU layer, samples, and the true columns of the factorisation of their gradients."""

    weight: Tensor
    bias: Tensor
    samples: Tensor
    factors: Factors
    columns: Tensor

    def exact(self, candidates: Tensor) -> Tensor:
        """Mark the samples whose column is among candidates; Shape (N)."""
        return ((candidates @ self.columns.T).abs() > 1 - 1e-9).any(0)


def make_case(seed: int = 0, silent: int = 0) -> Case:
    """Make a case in which the first neurons are inactive for all samples."""
    stream = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=stream, dtype=torch.double)

    weight, bias, samples = draw(NEURONS, FEATURES), draw(NEURONS), draw(SAMPLES, FEATURES)
    bias[:silent] = -1e3
    gradients = draw(NEURONS, SAMPLES) * (samples @ weight.T + bias > 0).T
    factors = factorise(gradients @ samples, gradients.sum(1), SAMPLES)
    columns = (factors.basis.T @ gradients).T
    columns = columns / columns.norm(dim=1, keepdim=True)
    return Case(weight, bias, samples, factors, columns)


def test_approximate_samples_give_exact_columns() -> None:
    case = make_case()
    noise = torch.randn(case.samples.shape, generator=torch.Generator().manual_seed(1))
    approximate = case.samples + 0.1 * noise.double()
    assert case.exact(pattern_columns(case.factors, approximate, case.weight, case.bias)).all()


def test_neurons_that_are_inactive_for_all_samples_say_nothing() -> None:
    case = make_case(silent=60)
    assert case.factors.live().sum() <= NEURONS - 60
    assert case.exact(pattern_columns(case.factors, case.samples, case.weight, case.bias)).all()


def test_samples_of_another_batch_give_none() -> None:
    case, other = make_case(), make_case(seed=1)
    candidates = pattern_columns(case.factors, other.samples, case.weight, case.bias)
    assert not case.exact(candidates).any()


def test_known_columns_leave_mixtures_of_the_other_samples() -> None:
    case = make_case()
    rest = remaining_mixture(case.factors, case.columns[:4])
    mixed = torch.cat([rest.weight[0], rest.bias[0][:, None]], 1)
    others = torch.cat([case.samples, torch.ones(SAMPLES, 1)], 1)[4:].double()
    shares = torch.linalg.lstsq(others.T, mixed.T).solution
    assert mixed.shape == (2, FEATURES + 1)
    torch.testing.assert_close((others.T @ shares).T, mixed)


def test_of_a_known_batch_nothing_is_left() -> None:
    case = make_case()
    rest = remaining_mixture(case.factors, case.columns)
    assert rest.weight.shape == (1, 0, FEATURES)
    assert not len(pattern_columns(case.factors, rest.weight[0], case.weight, case.bias))
