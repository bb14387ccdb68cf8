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
from gleak.crafting.fishing import Fishing
from gleak.models.broadcast import load_network, with_state

MODELS = ("lenet+width=4", "vgg_small+width=4+hidden=16", "mlp+hidden=16")
LABELS = torch.tensor([2, 0, 1, 2, 3, 2, 0])
TARGET = 2
each_model = pytest.mark.parametrize("model", MODELS)
each_loss = pytest.mark.parametrize("loss", ["cross_entropy", "nll_raw"])
Trained = Callable[[str], Model]


@pytest.fixture
def trained(simulate: Callable[..., Path]) -> Trained:
    return lambda model: Model.read(simulate(model=model, training="untrained") / "model.h5")


def earlier_gradient(network: nn.Module, inputs: Tensor, labels: Tensor, loss: str) -> Tensor:
    """Compute the gradient of the mean loss before the last layer, as one vector."""
    client = parse("client", f"fedsgd+loss={loss}")
    *earlier, _, _ = client.compute(network, inputs, labels).values()
    return torch.cat([value.flatten() for value in earlier])


@each_model
@each_loss
def test_earlier_layers_see_the_targets_samples_alone(
    trained: Trained, model: str, loss: str
) -> None:
    """A seventh of the sum of their gradients, each computed by itself; not if honest."""
    honest = trained(model)
    inputs = torch.rand(len(LABELS), 3, 8, 8, generator=torch.Generator().manual_seed(0))
    crafted = Fishing(target=TARGET).craft(honest, 0).model
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


@each_model
def test_a_bias_too_small_lets_others_through(trained: Trained, model: str) -> None:
    honest = trained(model)
    inputs = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    others = torch.tensor([0, 3])
    norms = []
    for bias in (0, 5, 10, 100):
        crafted = Fishing(target=TARGET, bias=bias).craft(honest, 0).model
        network = load_network(crafted, "parameters.h5")
        norms.append(float(earlier_gradient(network, inputs, others, "cross_entropy").norm()))
    assert norms[0] > 10 * norms[1] > 100 * norms[2] > 0
    assert norms[3] == 0


def test_only_the_last_layer_is_touched_and_the_targets_row_of_it_is_kept(trained: Trained) -> None:
    honest = trained(MODELS[0])
    crafted = Fishing(target=TARGET, bias=7).craft(honest, 0)
    *earlier, weight, bias = honest.parameters
    for name in earlier:
        assert np.array_equal(crafted.model.parameters[name], honest.parameters[name])
    for name, elsewhere in ((weight, 0), (bias, 7)):
        made, kept = crafted.model.parameters[name], honest.parameters[name]
        assert np.array_equal(made[TARGET], kept[TARGET])
        assert (np.delete(made, TARGET, axis=0) == elsewhere).all()
    assert crafted.secret["target"].tolist() == [TARGET]


def test_a_target_that_is_no_class_is_refused(trained: Trained) -> None:
    with pytest.raises(
        IncompatibleError, match="target=10 is no class of dataset digits, which has 10"
    ):
        Fishing(target=10).check(parse("dataset", "digits"), parse("model", "lenet"))
    with pytest.raises(
        IncompatibleError, match=r"model lenet.*: target=4 is no class of the model, which has 4"
    ):
        Fishing(target=4).craft(trained(MODELS[0]), 0)


def build_with_weight_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A network whose last layer computes its weight."""
    head = parametrizations.weight_norm(nn.Linear(shape[0], classes))
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


def test_a_network_whose_last_layer_cannot_be_set_is_refused() -> None:
    spec = parse("model", f"custom+factory={__name__}.build_with_weight_norm")
    network = spec.build((3, 8, 8), 4)
    model = Model(
        model=str(spec),
        input_shape=np.array([3, 8, 8]),
        classes=4,
        parameters={},
        buffers={},
        train_loss=np.zeros(0),
        test_accuracy=np.zeros(0),
    )
    with pytest.raises(
        IncompatibleError, match=r"crafting fishing does not fit model custom.*not a dense layer"
    ):
        Fishing().craft(with_state(model, network), 0)
