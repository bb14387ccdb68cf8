"""Parameters that let one class through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from gleak.artifacts.model import Model
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.crafting.fishing import FishingCrafting
from gleak.models.broadcast import load_network

MODELS = ("lenet+width=4", "vgg_small+width=4+hidden=16", "mlp+hidden=16")
LABELS = torch.tensor([2, 0, 1, 2, 3, 2, 0])
TARGET = 2
Trained = Callable[[str], Model]


@pytest.fixture
def trained(simulate: Callable[..., Path]) -> Trained:
    return lambda model: Model.read(simulate(model=model, training="untrained") / "model.h5")


def earlier_gradient(network: nn.Module, inputs: Tensor, labels: Tensor, loss: str) -> Tensor:
    """Compute the gradient of the mean loss before the last layer, as one vector."""
    client = parse("client", f"fedsgd+loss={loss}")
    *earlier, _, _ = client.compute(network, inputs, labels).values()
    return torch.cat([value.flatten() for value in earlier])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", ["cross_entropy", "nll_raw"])
def test_earlier_layers_see_the_targets_samples_alone(
    trained: Trained, model: str, loss: str
) -> None:
    """A seventh of the sum of their gradients, each computed by itself; not if honest."""
    honest = trained(model)
    inputs = torch.rand(len(LABELS), 3, 8, 8, generator=torch.Generator().manual_seed(0))
    crafted = FishingCrafting(target=TARGET).craft(honest, 0).model
    gaps = []
    for artifact in (crafted, honest):
        network = load_network(artifact, "model.h5")
        held = [
            earlier_gradient(network, inputs[each, None], LABELS[each, None], loss)
            for each in (LABELS == TARGET).nonzero().flatten()
        ]
        expected = torch.stack(held).sum(0) / len(LABELS)
        found = earlier_gradient(network, inputs, LABELS, loss)
        gaps.append(float((found - expected).norm() / expected.norm()))
    assert gaps[0] < 1e-5
    assert gaps[1] > 0.1


@pytest.mark.parametrize("model", MODELS)
def test_a_bias_too_small_lets_others_through(trained: Trained, model: str) -> None:
    honest = trained(model)
    inputs = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    others = torch.tensor([0, 3])
    norms = []
    for bias in (0, 5, 10, 100):
        crafted = FishingCrafting(target=TARGET, bias=bias).craft(honest, 0).model
        network = load_network(crafted, "parameters.h5")
        norms.append(float(earlier_gradient(network, inputs, others, "cross_entropy").norm()))
    assert norms[0] > 10 * norms[1] > 100 * norms[2] > 0
    assert norms[3] == 0


def test_only_the_last_layer_is_touched_and_the_targets_row_of_it_is_kept(trained: Trained) -> None:
    honest = trained(MODELS[0])
    crafted = FishingCrafting(target=TARGET, bias=7).craft(honest, 0)
    *earlier, weight, bias = honest.parameters
    for name in earlier:
        assert np.array_equal(crafted.model.parameters[name], honest.parameters[name])
    for name, elsewhere in ((weight, 0), (bias, 7)):
        made, kept = crafted.model.parameters[name], honest.parameters[name]
        assert np.array_equal(made[TARGET], kept[TARGET])
        assert (np.delete(made, TARGET, axis=0) == elsewhere).all()
    assert crafted.secret["target"].tolist() == [TARGET]


def test_a_target_that_is_no_class_and_a_last_layer_that_cannot_be_set_are_refused(
    trained: Trained,
) -> None:
    no_class = "target=10 is no class of dataset digits, which has 10"
    with pytest.raises(IncompatibleError, match=no_class):
        FishingCrafting(target=10).check(parse("dataset", "digits"), parse("model", "lenet"))
    no_class = r"model lenet.*: target=4 is no class of the model, which has 4"
    with pytest.raises(IncompatibleError, match=no_class):
        FishingCrafting(target=4).craft(trained(MODELS[0]), 0)
    head = parametrizations.weight_norm(nn.Linear(192, 4))
    with pytest.raises(IncompatibleError, match="not a dense layer"):
        FishingCrafting().craft_network(nn.Sequential(nn.Flatten(), head), (3, 8, 8), 4, 0)
