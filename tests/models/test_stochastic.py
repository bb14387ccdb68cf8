"""PRECODE's block, compared with torch's distributions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from gleak.core.registry import parse
from gleak.models.layers import GaussianSample
from gleak.models.stochastic import deterministic_copy, stochastic_layers, stochastic_training_mode

INPUTS = torch.rand(50, 4, 3, 3, generator=torch.Generator().manual_seed(0)) + 0.1


class Functional(nn.Module):
    """Dropout as a function in a user's module."""

    def __init__(self, drop: Callable[..., Tensor]) -> None:
        super().__init__()
        self.drop = drop

    def forward(self, inputs: Tensor) -> Tensor:
        return self.drop(inputs, 0.5, training=self.training)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "Dropout": lambda: nn.Dropout(0.5),
    "Dropout1d": lambda: nn.Sequential(nn.Flatten(2), nn.Dropout1d(0.5), nn.Unflatten(2, (3, 3))),
    "Dropout2d": lambda: nn.Dropout2d(0.5),
    "Dropout3d": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Dropout3d(), nn.Flatten(1, 2)),
    "AlphaDropout": lambda: nn.AlphaDropout(0.5),
    "FeatureAlphaDropout": lambda: nn.FeatureAlphaDropout(0.5),
    "functional": lambda: Functional(functional.dropout),
    "functional, of channels": lambda: Functional(functional.dropout2d),
    "RReLU": lambda: nn.Sequential(nn.LogSigmoid(), nn.RReLU(0.1, 0.9)),
    "attention": lambda: nn.Sequential(
        nn.Flatten(2), nn.TransformerEncoderLayer(9, 3, 4, dropout=0.5, batch_first=True)
    ),
    "variational": lambda: nn.Sequential(
        nn.Flatten(), GaussianSample(0.1), nn.Linear(18, 36), nn.Unflatten(1, (4, 3, 3))
    ),
}


def network(kind: str) -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(4), LAYERS[kind]())


@pytest.mark.parametrize("kind", LAYERS)
def test_dropout_of_every_kind_draws_while_normalisation_stays_in_evaluation_mode(
    kind: str,
) -> None:
    model = network(kind).eval()
    certain = model(INPUTS)
    with stochastic_training_mode(model, INPUTS):
        assert not torch.equal(model(INPUTS), model(INPUTS))
        assert not model[0].training
    assert not any(layer.training for layer in model.modules())
    assert torch.equal(model(INPUTS), certain)


@pytest.mark.parametrize("kind", LAYERS)
def test_the_copy_never_draws_and_shares_parameters(kind: str) -> None:
    model = network(kind).train()
    certain = deterministic_copy(model)
    with stochastic_training_mode(certain, INPUTS):
        assert torch.equal(certain(INPUTS), certain(INPUTS))
    assert [*certain.parameters()] == [*model.parameters()]
    with stochastic_training_mode(model, INPUTS):
        assert all(layer.training for layer in model.modules())
    assert all(layer.training for layer in model.modules())


def test_finding_stochastic_layers_changes_neither_network_nor_random_state() -> None:
    """Draws are those of the innermost layer."""
    layers = nn.Sequential(nn.Dropout(), nn.Identity()), nn.BatchNorm2d(4), nn.Dropout()
    model = nn.Sequential(*layers).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    assert stochastic_layers(model, INPUTS) == ("0.0", "2")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())


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


def dense(network: nn.Module) -> list[tuple[int, int]]:
    return [(at.in_features, at.out_features) for at in network.modules() if type(at) is nn.Linear]


@pytest.mark.parametrize("name", NAMES)
def test_the_block_stands_before_the_last_dense_layer_of_the_same_network(name: str) -> None:
    """And what clients know of its layers is what is built."""
    specs = [parse("model", f"{name}{f}") for f in ("", f"+precode={BOTTLENECK}+beta=0.5")]
    plain, extended = (spec.build(SHAPE, 7) for spec in specs)
    (sample,) = (layer for layer in extended.modules() if isinstance(layer, GaussianSample))
    assert sample.beta == 0.5
    *earlier, last = dense(plain)
    block = [(last[0], 2 * BOTTLENECK), (BOTTLENECK, last[0])]
    assert dense(extended) == [*earlier, *block, last]
    kept = [key for key in extended.state_dict() if "encoder" not in key and "decoder" not in key]
    assert len(kept) == len(plain.state_dict())
    assert not any(isinstance(layer, GaussianSample) for layer in plain.modules())
    for spec, network in zip(specs, (plain, extended), strict=True):
        assert spec.first_dense_neurons(7) == dense(network)[0][1]
        assert spec.hidden_dense == (len(dense(network)) > 1)
