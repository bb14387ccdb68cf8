from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gleak.models.layers import GaussianSample
from gleak.models.stochastic import (
    deterministic_copy,
    sampling_layers,
    stochastic_layers,
    stochastic_training_mode,
)

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
        assert not any(
            isinstance(each, nn.BatchNorm2d) and each.training for each in model.modules()
        )
    assert not any(layer.training for layer in model.modules())
    assert torch.equal(model(INPUTS), certain)


def test_layers_that_do_not_draw_stay_in_their_mode() -> None:
    model = network("Dropout2d").eval()
    with stochastic_training_mode(model, INPUTS):
        assert [layer.training for layer in model.modules()] == [False, False, True]


def test_a_network_in_training_mode_is_left_in_it() -> None:
    model = network("Dropout2d").train()
    with stochastic_training_mode(model, INPUTS):
        assert all(layer.training for layer in model.modules())
    assert all(layer.training for layer in model.modules())


@pytest.mark.parametrize("kind", LAYERS)
def test_the_copy_never_draws_and_shares_parameters(kind: str) -> None:
    model = network(kind).train()
    certain = deterministic_copy(model)
    with stochastic_training_mode(certain, INPUTS):
        assert torch.equal(certain(INPUTS), certain(INPUTS))
    assert all(
        one is other for one, other in zip(model.parameters(), certain.parameters(), strict=True)
    )
    assert all(layer.training for layer in model.modules())


def test_finding_stochastic_layers_changes_neither_network_nor_random_state() -> None:
    model = network("Dropout").eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    assert stochastic_layers(model, INPUTS) == ("1",)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())


def test_draws_are_those_of_the_innermost_layer() -> None:
    model = nn.Sequential(nn.Sequential(nn.Dropout(), nn.Identity()), nn.Dropout())
    assert sampling_layers(model, INPUTS) == ("0.0", "1")
