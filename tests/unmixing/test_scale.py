from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.unmixing.scale import by_bias, by_range, embeddings_by_sign

FEATURES = 50


def draw(seed: int, samples: int) -> tuple[Tensor, Tensor]:
    """Samples in [0, 1], Shape (2, N, F), and factors of either sign and any size, (2, N, 1)."""
    stream = torch.Generator().manual_seed(seed)
    samples_drawn = torch.rand(2, samples, FEATURES, generator=stream, dtype=torch.double)
    factors = 10 ** (4 * torch.rand(2, samples, 1, generator=stream, dtype=torch.double) - 2)
    return samples_drawn, factors * torch.randn(2, samples, 1, generator=stream).sign()


def unmixed(samples: Tensor, factors: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """What the true unmixing, its rows in any order and of any length, makes of a dense layer."""
    stream = torch.Generator().manual_seed(seed)
    output_gradients = torch.randn(2, 30, samples.shape[1], generator=stream, dtype=torch.double)
    order = torch.randperm(samples.shape[1], generator=stream)
    rows = factors[:, order] * torch.linalg.pinv(output_gradients)[:, order]
    return rows @ (output_gradients @ samples), rows @ output_gradients.sum(2, keepdim=True)


def permuted(found: Tensor, samples: Tensor) -> Tensor:
    """What was found, in the order of the samples it is nearest to."""
    nearest = torch.cdist(samples, found).argmin(2)
    assert torch.equal(nearest.sort(1).values, torch.arange(samples.shape[1]).expand(2, -1))
    return found.take_along_dim(nearest[..., None], 1)


@given(st.integers(1, 6), st.integers(0, 99))
def test_of_exact_unmixing_the_bias_tells_sign_and_scale(samples: int, seed: int) -> None:
    truth, factors = draw(seed, samples)
    found, _ = by_bias(*unmixed(truth, factors, seed))
    torch.testing.assert_close(permuted(found, truth), truth)


@given(st.integers(1, 6), st.integers(0, 99))
def test_the_range_of_every_sample_is_filled_under_the_biass_sign(samples: int, seed: int) -> None:
    truth, factors = draw(seed, samples)
    found, mirrored = by_range(*unmixed(truth, factors, seed))
    low, high = truth.amin(2, keepdim=True), truth.amax(2, keepdim=True)
    stretched = (truth - low) / (high - low)
    torch.testing.assert_close(permuted(found, stretched), stretched)
    torch.testing.assert_close(mirrored, 1 - found)


@pytest.mark.parametrize("settle", [by_bias, by_range])
def test_the_mirrored_are_those_of_the_opposite_factor(settle: type(by_bias)) -> None:
    samples, factors = draw(0, 3)
    found, mirrored = settle(samples, factors)
    other, back = settle(samples, -factors)
    torch.testing.assert_close(mirrored, other)
    torch.testing.assert_close(found, back)


@pytest.mark.parametrize("settle", [by_bias, by_range])
@pytest.mark.parametrize("share", [-3.0, -0.2, 0.0, 0.01, 0.5])
def test_a_factor_that_is_wrong_leaves_values_in_the_unit_range(
    settle: type(by_bias), share: float
) -> None:
    samples, factors = draw(1, 3)
    for images in settle(samples * factors, share * factors):
        assert images.isfinite().all()
        assert images.min() >= 0
        assert images.max() <= 1


def test_values_that_leave_the_range_are_drawn_together_as_far_as_they_reach() -> None:
    sources = torch.tensor([[[-1.0, 0.0, 1.0, 3.0], [0.0, 0.5, 1.0, 4.0], [0.25, 0.5, 0.5, 0.75]]])
    found, _ = by_bias(sources, torch.ones(1, 3, 1))
    assert found[0, 0].tolist() == [0.0, 0.25, 0.5, 1.0]
    assert found[0, 1].tolist() == [0.0, 0.125, 0.25, 1.0]
    assert torch.equal(found[0, 2], sources[0, 2])


@pytest.mark.parametrize("settle", [by_bias, by_range])
def test_a_source_of_zeros_without_a_factor_is_black(settle: type(by_bias)) -> None:
    found, _ = settle(torch.zeros(1, 2, 5), torch.zeros(1, 2, 1))
    assert torch.equal(found, torch.zeros(1, 2, 5))


@given(st.integers(1, 6), st.integers(0, 99))
def test_embeddings_have_the_sign_of_their_sum_whatever_the_biass(samples: int, seed: int) -> None:
    truth, factors = draw(seed, samples)
    truth = truth.where(truth > 0.5, 0.0)
    for signs in (1, -1):
        found = embeddings_by_sign(factors * truth, signs * factors)
        torch.testing.assert_close(found, truth)


def test_of_embeddings_what_is_negative_is_cut() -> None:
    found = embeddings_by_sign(torch.tensor([[[1.0, -6.0, -2.0, 0.0]]]), torch.tensor([[[2.0]]]))
    assert found.tolist() == [[[0.0, 3.0, 1.0, 0.0]]]
