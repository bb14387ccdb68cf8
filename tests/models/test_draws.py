from __future__ import annotations

import pytest
import torch
from torch import nn

from gleak.models.draws import drawing, unmoved_by_draws
from gleak.models.variational import GaussianSample

LAYERS = {"dropout": lambda: nn.Dropout(0.5), "sample": lambda: GaussianSample(0.1)}
INPUTS = torch.ones(50, 4)


def network(kind: str) -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(4), LAYERS[kind]())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_that_draw_are_in_training_mode_and_no_others(kind: str, training: bool) -> None:
    model = network(kind).train(training)
    with drawing(model):
        assert [layer.training for layer in model] == [training, True]
        assert not torch.equal(model[1](INPUTS), model[1](INPUTS))
    assert all(layer.training == training for layer in model.modules())


@pytest.mark.parametrize("kind", LAYERS)
def test_draws_change_nothing_where_they_are_not_to(kind: str) -> None:
    model = network(kind).eval()
    before = dict(vars(model[1]))
    with unmoved_by_draws(model), drawing(model):
        found = model(INPUTS)
    assert torch.equal(found, model(INPUTS))
    assert vars(model[1]) == before
