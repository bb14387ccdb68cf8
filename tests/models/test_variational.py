"""PRECODE's block, compared with torch's distributions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from gleak.core.registry import parse
from gleak.models.layers import GaussianSample

SHAPE = (3, 32, 32)
NAMES = [
    "fc2+hidden=6",
    "mlp+hidden=6+dropout=0.5",
    "lenet+width=2",
    "lenet5",
    "lenet128+width=2+hidden=6",
    "vgg7+width=2+hidden=6",
    "resnet18+width=2",
    "resnet20",
]
BOTTLENECK = 5


def drawn(samples: int, size: int, seed: int) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(samples, 2 * size, generator=stream, dtype=torch.double)


def gaussians(statistics: Tensor) -> Normal:
    size = statistics.shape[1] // 2
    return Normal(statistics[:, :size], functional.softplus(statistics[:, size:]))


@given(st.integers(1, 4), st.integers(1, 6), st.floats(0, 3), st.integers(0, 99))
def test_the_penalty_is_the_divergence_from_the_standard_normal(
    samples: int, size: int, beta: float, seed: int
) -> None:
    statistics = drawn(samples, size, seed)
    divergences = kl_divergence(gaussians(statistics), Normal(0.0, 1.0)).sum(1)
    torch.testing.assert_close(GaussianSample(beta).penalty(statistics), beta * divergences)


def test_samples_are_those_of_the_gaussian() -> None:
    statistics = drawn(1, 3, 0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        samples = GaussianSample(1.0).train()(statistics.expand(100_000, -1))
    expected = gaussians(statistics)
    torch.testing.assert_close(samples.mean(0), expected.mean[0], atol=0.03, rtol=0)
    torch.testing.assert_close(samples.std(0), expected.stddev[0], atol=0.03, rtol=0)


def test_nothing_is_drawn_in_evaluation_mode() -> None:
    statistics, before = drawn(4, 3, 0), torch.get_rng_state()
    assert torch.equal(GaussianSample(1.0).eval()(statistics), statistics[:, :3])
    assert torch.equal(torch.get_rng_state(), before)


def dense(network: nn.Module) -> list[tuple[int, int]]:
    return [(at.in_features, at.out_features) for at in network.modules() if type(at) is nn.Linear]


@pytest.mark.parametrize("name", NAMES)
def test_the_block_stands_before_the_last_dense_layer(name: str) -> None:
    network = parse("model", f"{name}+precode={BOTTLENECK}+beta=0.5").build(SHAPE, 7)
    *_, layer, sample, decoder, last = [at for at in network.modules() if not list(at.children())]
    assert isinstance(sample, GaussianSample)
    assert sample.beta == 0.5
    features, classes = last.in_features, last.out_features
    assert classes == 7
    assert (layer.in_features, layer.out_features) == (features, 2 * BOTTLENECK)
    assert (decoder.in_features, decoder.out_features) == (BOTTLENECK, features)


@pytest.mark.parametrize("name", NAMES)
def test_the_rest_of_the_network_is_what_it_is_without(name: str) -> None:
    plain, extended = (
        parse("model", f"{name}{f}").build(SHAPE, 7) for f in ("", f"+precode={BOTTLENECK}")
    )
    block = dense(extended)[-3:-1]
    assert [*dense(plain)[:-1], *block, dense(plain)[-1]] == dense(extended)
    kept = [key for key in extended.state_dict() if "encoder" not in key and "decoder" not in key]
    assert len(kept) == len(plain.state_dict())
    assert not any(isinstance(layer, GaussianSample) for layer in plain.modules())


@pytest.mark.parametrize("name", NAMES)
def test_what_clients_know_of_its_layers_is_what_is_built(name: str) -> None:
    for bottleneck in (0, BOTTLENECK):
        spec = parse("model", f"{name}+precode={bottleneck}")
        layers = dense(spec.build(SHAPE, 7))
        assert spec.first_dense_neurons(7) == layers[0][1]
        assert spec.hidden_dense == (len(layers) > 1)
