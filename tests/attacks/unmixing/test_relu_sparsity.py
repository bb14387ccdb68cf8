from __future__ import annotations

from dataclasses import dataclass
from random import Random

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.attacks.unmixing.relu_sparsity import factorise, sharpen, unmix

FEATURES, NEURONS = 40, 64


@dataclass(frozen=True)
class Case:
    """ReLU layer, samples, and their gradients A X and A 1."""

    weight: Tensor
    bias: Tensor
    samples: Tensor
    output_gradients: Tensor

    @property
    def gradients(self) -> tuple[Tensor, Tensor]:
        return self.output_gradients @ self.samples, self.output_gradients.sum(1)

    @property
    def columns(self) -> Tensor:
        """Return the true columns of Q: the output gradients in the basis."""
        found = (factorise(*self.gradients, len(self.samples)).basis.T @ self.output_gradients).T
        return found / found.norm(dim=1, keepdim=True)


def make_case(samples: int, seed: int) -> Case:
    stream = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=stream, dtype=torch.double)

    weight, bias = draw(NEURONS, FEATURES), draw(NEURONS)
    inputs = draw(samples, FEATURES).sigmoid()
    weight = weight - weight.mean(1, keepdim=True)
    active = inputs @ weight.T + bias > 0
    return Case(weight, bias, inputs, (draw(samples, NEURONS) * active).T)


@given(st.integers(1, 8), st.integers(0, 99))
def test_factors_multiply_to_the_gradients(samples: int, seed: int) -> None:
    weight, bias = make_case(samples, seed).gradients
    factors = factorise(weight, bias, samples)
    joined = torch.cat([weight, bias[:, None]], 1)
    torch.testing.assert_close(factors.basis @ factors.rest, joined)
    identity = torch.eye(samples, dtype=torch.double)
    torch.testing.assert_close(factors.basis.T @ factors.basis, identity)


def test_a_sample_twice_or_without_gradient_lowers_the_rank() -> None:
    case = make_case(5, 0)
    twice = case.samples.clone()
    twice[1] = twice[0]
    assert factorise(case.output_gradients @ twice, case.output_gradients.sum(1), 5).rank == 4
    assert factorise(0 * case.gradients[0], 0 * case.gradients[1], 5).rank == 0


@given(st.integers(1, 8), st.integers(0, 99), st.randoms())
def test_true_columns_unmix_exactly_in_any_order_and_of_any_length(
    samples: int, seed: int, random: Random
) -> None:
    case = make_case(samples, seed)
    order = torch.tensor(random.sample(range(samples), samples))
    signs = torch.where(order % 2 == 0, 1.0, -1.0)[:, None]
    factors = factorise(*case.gradients, samples)
    found = unmix(factors, signs * case.columns[order], case.weight, case.bias)
    torch.testing.assert_close(found.inputs, case.samples[order], atol=1e-6, rtol=1e-6)
    assert found.consistent.all()


def test_wrong_columns_are_not_consistent() -> None:
    case = make_case(6, 2)
    factors = factorise(*case.gradients, 6)
    assert torch.equal(factors.zeros(case.columns), case.output_gradients.T == 0)
    assert unmix(factors, case.columns, case.weight, case.bias).consistent.all()
    wrong = torch.linalg.qr(torch.randn(6, 6, dtype=torch.double)).Q
    assert not unmix(factors, wrong, case.weight, case.bias).consistent.any()


def test_a_true_column_is_where_sharpening_rests_and_leads() -> None:
    case = make_case(6, 3)
    factors = factorise(*case.gradients, 6)
    stream = torch.Generator().manual_seed(0)
    beside = case.columns + 0.01 * torch.randn(6, 6, generator=stream, dtype=torch.double)
    for start in (case.columns, beside):
        cosines = (sharpen(factors, start, width=0.05) * case.columns).sum(1).abs()
        torch.testing.assert_close(cosines, torch.ones_like(cosines))


@given(st.integers(1, 8), st.integers(0, 99))
def test_noise_that_hides_every_column_is_recognised(samples: int, seed: int) -> None:
    weight, bias = make_case(samples, seed).gradients
    stream = torch.Generator().manual_seed(seed)
    noise = weight.std() * torch.randn(weight.shape, generator=stream, dtype=torch.double)
    assert not factorise(weight, bias, samples).hidden
    assert not factorise(weight + 1e-6 * noise, bias, samples).hidden
    noisy = factorise(weight + 100 * noise, bias, samples)
    assert noisy.hidden
    assert noisy.zeros(torch.eye(samples, dtype=torch.double)).double().mean() > 0.5
