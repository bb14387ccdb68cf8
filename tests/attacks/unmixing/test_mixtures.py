"""Whitening, separation and scale of mixtures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.attacks.unmixing.mixtures import (
    Mixture,
    Unmixing,
    by_bias,
    by_range,
    embeddings_by_sign,
    estimated_sources,
    separate,
    visible_sources,
    whiten,
)

FEATURES = 300
NEURONS = 40


def draw(seed: int, victims: int, count: int, neurons: int = NEURONS) -> tuple[Tensor, Tensor]:
    """Derivatives A, Shape (V, neurons, N), and inputs X, Shape (V, N, F), in single precision."""
    stream = torch.Generator().manual_seed(seed)
    output_gradients = torch.randn(victims, neurons, count, generator=stream)
    return output_gradients, torch.rand(victims, count, FEATURES, generator=stream)


def mixed(output_gradients: Tensor, inputs: Tensor) -> Mixture:
    return Mixture(output_gradients @ inputs, output_gradients.sum(2))


@given(st.integers(1, 3), st.integers(1, 8), st.integers(0, 99), st.sampled_from([1e-8, 1.0, 1e8]))
def test_white_signals_are_uncorrelated_and_of_unit_variance(
    victims: int, count: int, seed: int, scale: float
) -> None:
    weight = scale * mixed(*draw(seed, victims, count)).weight
    white = whiten(weight, count)
    assert white.signals.shape == (victims, count, FEATURES)
    assert white.signals.mean(2).abs().max() < 1e-5
    signals = white.signals.double()
    identity = torch.eye(count, dtype=torch.double).expand(victims, count, count)
    torch.testing.assert_close(signals @ signals.mT / FEATURES, identity, atol=1e-5, rtol=0)
    made = (white.transform @ weight.double()).float()
    torch.testing.assert_close(white.uncentred, made, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(white.means, made.mean(2, keepdim=True), atol=1e-4, rtol=1e-4)


def test_as_many_signals_as_sources_hold_all_of_them() -> None:
    output_gradients, inputs = draw(0, 1, 5)
    signals = whiten(mixed(output_gradients, inputs).weight, 5).signals[0].T
    centred = (inputs - inputs.mean(2, keepdim=True))[0].T
    unmixed = signals @ torch.linalg.lstsq(signals, centred).solution
    torch.testing.assert_close(unmixed, centred, atol=1e-5, rtol=0)


def test_a_source_much_fainter_than_others_is_kept() -> None:
    """Its variance, 1e-10 of the others', is below the resolution of single precision."""
    output_gradients, inputs = draw(1, 1, 3)
    faint = mixed(output_gradients * torch.tensor([1.0, 1.0, 1e-5]), inputs)
    assert visible_sources(faint, 3) == [3]
    signals = whiten(faint.weight, 3).signals[0].T
    source = (inputs - inputs.mean(2, keepdim=True))[0, 2]
    unmixed = signals @ torch.linalg.lstsq(signals, source[:, None]).solution[:, 0]
    assert torch.corrcoef(torch.stack([unmixed, source]))[0, 1] > 0.99


@given(st.integers(2, 8), st.integers(0, 99))
def test_what_gives_no_gradient_of_its_own_is_not_visible(count: int, seed: int) -> None:
    output_gradients, inputs = draw(seed, 4, count)
    inputs[1, 0] = inputs[1, 1]  # a sample twice
    output_gradients[2, :, 0] = 0  # a sample without gradient
    inputs[3, 0] = 0.25  # a grey sample: nothing is left of it once it is centred
    expected = [count, count - 1, count - 1, count - 1]
    assert visible_sources(mixed(output_gradients, inputs), count) == expected
    assert estimated_sources(mixed(output_gradients, inputs)) == expected


def test_no_more_are_visible_than_neurons_that_differ_or_than_are_sought() -> None:
    output_gradients, inputs = draw(0, 2, 8)
    output_gradients[0, 5:] = 0
    output_gradients[1, 4:] = output_gradients[1, :1]
    assert visible_sources(mixed(output_gradients, inputs), 8) == [5, 4]
    assert visible_sources(mixed(output_gradients, inputs), 3) == [3, 3]


@pytest.mark.parametrize("level", [0.0, 1e-4, 0.03])
@pytest.mark.parametrize("count", [1, 5, 12])
def test_sources_are_counted_whatever_the_noise(level: float, count: int) -> None:
    output_gradients, inputs = draw(count, 3, count)
    noise = torch.randn(3, NEURONS, FEATURES, generator=torch.Generator().manual_seed(0))
    mixture = Mixture(output_gradients @ inputs + level * noise, output_gradients.sum(2))
    assert estimated_sources(mixture) == [count] * 3
    assert visible_sources(mixture, NEURONS) == [NEURONS if level else count] * 3


def test_a_layer_with_fewer_inputs_than_neurons_is_no_noisier() -> None:
    """The median is over the singular values there can be, not over neurons."""
    output_gradients, inputs = draw(0, 2, 4, neurons=256)
    noise = torch.randn(2, 256, 64, generator=torch.Generator().manual_seed(0))
    mixture = Mixture(output_gradients @ inputs[..., :64] + 0.01 * noise, output_gradients.sum(2))
    assert estimated_sources(mixture) == [4, 4]


def test_of_noise_alone_one_source_is_counted_and_of_zeros_none() -> None:
    noise = torch.randn(3, NEURONS, FEATURES, generator=torch.Generator().manual_seed(0))
    assert estimated_sources(Mixture(noise, noise[..., 0])) == [1, 1, 1]
    silent = Mixture(0 * noise, 0 * noise[..., 0])
    assert visible_sources(silent, 4) == estimated_sources(silent) == [0, 0, 0]


VICTIMS, SOURCES_NEURONS, SOURCES_FEATURES = 4, 5, 7
STREAM = torch.Generator().manual_seed(0)
MIXTURE = Mixture(
    torch.randn(VICTIMS, SOURCES_NEURONS, SOURCES_FEATURES, generator=STREAM),
    torch.randn(VICTIMS, SOURCES_NEURONS, generator=STREAM),
)


def first_neurons(mixture: Mixture, count: int) -> Unmixing:
    """Return rows that select the first neurons; iterations count the victims unmixed together."""
    together = torch.full((len(mixture.weight),), len(mixture.weight))
    rows = torch.eye(SOURCES_NEURONS, dtype=torch.double)[:count].expand(len(together), -1, -1)
    return Unmixing(rows, together, together.double() + count / 10)


def test_every_victim_has_its_own_sources_and_the_rest_is_not_finite() -> None:
    found = separate(MIXTURE, [2, 0, 3, 2], 3, first_neurons)
    assert found.values.shape == (VICTIMS, 3, SOURCES_FEATURES)
    assert found.factors.shape == (VICTIMS, 3, 1)
    for victim, count in enumerate([2, 0, 3, 2]):
        torch.testing.assert_close(found.values[victim, :count], MIXTURE.weight[victim, :count])
        torch.testing.assert_close(found.factors[victim, :count, 0], MIXTURE.bias[victim, :count])
        assert not found.values[victim, count:].isfinite().any()


def test_victims_with_equally_many_sources_come_together() -> None:
    found = separate(MIXTURE, [2, 0, 3, 2], 4, first_neurons)
    assert found.values.shape[1] == 4
    assert found.iterations.tolist() == [2, 0, 1, 2]
    torch.testing.assert_close(found.objective, torch.tensor([2.2, 0.0, 1.3, 2.2]))


def test_rows_are_applied_in_double_precision() -> None:
    large = Mixture(torch.tensor([[[1e8], [1.0]]]), torch.tensor([[1e8, 1.0]]))
    rows = torch.tensor([[[1.0, 1.0], [1.0, 0.0]]], dtype=torch.double)
    rows = torch.linalg.inv(torch.eye(2).double() + 1e-9) @ rows

    def unmix(mixture: Mixture, count: int) -> Unmixing:
        return Unmixing(rows, torch.zeros(1).long(), torch.zeros(1))

    found = separate(large, [2], 2, unmix)
    expected = rows @ large.weight.double()
    torch.testing.assert_close(found.values.double(), expected, rtol=1e-7, atol=0)
    torch.testing.assert_close(found.factors, found.values)


SCALE_FEATURES = 50
Scaling = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
each_scale = pytest.mark.parametrize("settle", [by_bias, by_range])


def scale_draw(seed: int, samples: int) -> tuple[Tensor, Tensor]:
    """Draw samples in [0, 1], Shape (2, N, F), and factors of either sign, (2, N, 1)."""
    stream = torch.Generator().manual_seed(seed)
    samples_drawn = torch.rand(2, samples, SCALE_FEATURES, generator=stream, dtype=torch.double)
    factors = 10 ** (4 * torch.rand(2, samples, 1, generator=stream, dtype=torch.double) - 2)
    return samples_drawn, factors * torch.randn(2, samples, 1, generator=stream).sign()


def unmixed(samples: Tensor, factors: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Unmix a dense layer by the true unmixing, its rows in any order and of any length."""
    stream = torch.Generator().manual_seed(seed)
    output_gradients = torch.randn(2, 30, samples.shape[1], generator=stream, dtype=torch.double)
    order = torch.randperm(samples.shape[1], generator=stream)
    rows = factors[:, order] * torch.linalg.pinv(output_gradients)[:, order]
    return rows @ (output_gradients @ samples), rows @ output_gradients.sum(2, keepdim=True)


def permuted(found: Tensor, samples: Tensor) -> Tensor:
    """Return the results in the order of their nearest samples."""
    nearest = torch.cdist(samples, found).argmin(2)
    assert torch.equal(nearest.sort(1).values, torch.arange(samples.shape[1]).expand(2, -1))
    return found.take_along_dim(nearest[..., None], 1)


@given(st.integers(1, 6), st.integers(0, 99))
def test_of_exact_unmixing_the_bias_tells_sign_and_scale(samples: int, seed: int) -> None:
    truth, factors = scale_draw(seed, samples)
    found, _ = by_bias(*unmixed(truth, factors, seed))
    torch.testing.assert_close(permuted(found, truth), truth)


@given(st.integers(1, 6), st.integers(0, 99))
def test_the_range_of_every_sample_is_filled_under_the_biass_sign(samples: int, seed: int) -> None:
    truth, factors = scale_draw(seed, samples)
    found, mirrored = by_range(*unmixed(truth, factors, seed))
    low, high = truth.amin(2, keepdim=True), truth.amax(2, keepdim=True)
    stretched = (truth - low) / (high - low)
    torch.testing.assert_close(permuted(found, stretched), stretched)
    torch.testing.assert_close(mirrored, 1 - found)


@each_scale
def test_the_mirrored_are_those_of_the_opposite_factor(settle: Scaling) -> None:
    samples, factors = scale_draw(0, 3)
    found, mirrored = settle(samples, factors)
    torch.testing.assert_close(settle(samples, -factors), (mirrored, found))


@each_scale
@pytest.mark.parametrize("share", [-3.0, -0.2, 0.0, 0.01, 0.5])
def test_a_factor_that_is_wrong_leaves_values_in_the_unit_range(
    settle: Scaling, share: float
) -> None:
    samples, factors = scale_draw(1, 3)
    for images in settle(samples * factors, share * factors):
        assert ((images >= 0) & (images <= 1)).all()


def test_values_that_leave_the_range_are_drawn_together_as_far_as_they_reach() -> None:
    sources = torch.tensor([[[-1.0, 0.0, 1.0, 3.0], [0.0, 0.5, 1.0, 4.0], [0.25, 0.5, 0.5, 0.75]]])
    found, _ = by_bias(sources, torch.ones(1, 3, 1))
    expected = [[0.0, 0.25, 0.5, 1.0], [0.0, 0.125, 0.25, 1.0], [0.25, 0.5, 0.5, 0.75]]
    assert found[0].tolist() == expected


@each_scale
def test_a_source_of_zeros_without_a_factor_is_black(settle: Scaling) -> None:
    found, _ = settle(torch.zeros(1, 2, 5), torch.zeros(1, 2, 1))
    assert not found.any()


@given(st.integers(1, 6), st.integers(0, 99))
def test_embeddings_have_the_sign_of_their_sum_whatever_the_biass(samples: int, seed: int) -> None:
    truth, factors = scale_draw(seed, samples)
    truth = truth.where(truth > 0.5, 0.0)
    for signs in (1, -1):
        torch.testing.assert_close(embeddings_by_sign(factors * truth, signs * factors), truth)
    cut = embeddings_by_sign(torch.tensor([[[1.0, -6.0, -2.0, 0.0]]]), torch.tensor([[[2.0]]]))
    assert cut.tolist() == [[[0.0, 3.0, 1.0, 0.0]]]
