from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.unmixing.mixtures import Mixture, estimated_sources, visible_sources, whiten

FEATURES = 300
NEURONS = 40


def draw(seed: int, victims: int, count: int, neurons: int = NEURONS) -> tuple[Tensor, Tensor]:
    """Derivatives A, Shape (V, neurons, N), and inputs X, Shape (V, N, F), in single precision."""
    stream = torch.Generator().manual_seed(seed)
    output_gradients = torch.randn(victims, neurons, count, generator=stream)
    return output_gradients, torch.rand(victims, count, FEATURES, generator=stream)


def mixed(output_gradients: Tensor, inputs: Tensor) -> Mixture:
    return Mixture(output_gradients @ inputs, output_gradients.sum(2))


def covariances(signals: Tensor) -> Tensor:
    return signals.double() @ signals.double().mT / signals.shape[2]


@given(st.integers(1, 3), st.integers(1, 8), st.integers(0, 99), st.sampled_from([1e-8, 1.0, 1e8]))
def test_white_signals_are_uncorrelated_and_of_unit_variance(
    victims: int, count: int, seed: int, scale: float
) -> None:
    mixture = mixed(*draw(seed, victims, count))
    white = whiten(scale * mixture.weight, count)
    assert white.signals.shape == (victims, count, FEATURES)
    assert white.signals.mean(2).abs().max() < 1e-5
    identity = torch.eye(count, dtype=torch.double).expand(victims, count, count)
    torch.testing.assert_close(covariances(white.signals), identity, atol=1e-5, rtol=0)


@given(st.integers(1, 3), st.integers(1, 8), st.integers(0, 99))
def test_the_transform_makes_the_signals_of_the_mixtures(
    victims: int, count: int, seed: int
) -> None:
    mixture = mixed(*draw(seed, victims, count))
    white = whiten(mixture.weight, count)
    made = (white.transform @ mixture.weight.double()).float()
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


def test_a_gradient_of_zeros_has_no_sources() -> None:
    silent = Mixture(torch.zeros(2, NEURONS, FEATURES), torch.zeros(2, NEURONS))
    assert visible_sources(silent, 4) == estimated_sources(silent) == [0, 0]


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


def test_of_noise_alone_one_source_is_counted() -> None:
    noise = torch.randn(3, NEURONS, FEATURES, generator=torch.Generator().manual_seed(0))
    assert estimated_sources(Mixture(noise, noise[..., 0])) == [1, 1, 1]


def test_victims_are_kept_by_their_numbers() -> None:
    mixture = mixed(*draw(0, 3, 2))
    kept = mixture.keep(torch.tensor([2, 0]))
    assert torch.equal(kept.weight, mixture.weight[[2, 0]])
    assert torch.equal(kept.bias, mixture.bias[[2, 0]])
