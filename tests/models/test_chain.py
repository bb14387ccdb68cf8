"""Decomposition of sequential networks into steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models.chain import Chain, decompose

CONVOLUTION, DENSE = nn.Conv2d(1, 2, 3), nn.Linear(8, 4)
CHAINS = (
    "lenet",
    "lenet5",
    "lenet5+downsampling=stride",
    "lenet5+dropout=0.3",
    "mlp+hidden=16",
    "vgg_small+width=2+hidden=6",
    "vgg_small+width=2+hidden=6+norm=batch+normalise=imagenet",
    "vgg_small+width=2+hidden=6+activation=tanh+dropout=0.5",
    "vgg_small+width=2+hidden=6+activation=leaky_relu+downsampling=stride",
)


def run(chain: Chain, images: Tensor) -> Tensor:
    """Run the steps in the documented order; each shrinks what it would pad by its factor."""
    values = images if chain.normalisation is None else chain.normalisation(images)
    for step in chain.convolutions:
        side = values.shape[-1] - 2 * (step.layer.kernel_size[0] // 2 - step.layer.padding[0])
        values = step.layer(values)
        values = step.activation(values if step.norm is None else step.norm(values))
        values = values if step.pool is None else step.pool(values)
        assert values.shape[-1] == side // step.factor
    values = values.flatten(1)
    for dense in chain.dense:
        values = dense.activation(dense.layer(values))
    return values


@pytest.mark.parametrize("model", CHAINS)
def test_the_steps_one_after_another_are_the_network(model: str) -> None:
    torch.manual_seed(0)
    network = parse("model", model).build((3, 16, 16), 4)
    images = torch.rand(5, 3, 16, 16)
    network(images)  # batch normalisation sees some, so that what it does is not the identity
    network.eval()
    chain = decompose(network)
    assert torch.equal(run(chain, images), network(images))
    for step in [*chain.convolutions, *chain.dense]:
        assert network.get_submodule(step.name) is step.layer


def test_each_step_has_what_stands_behind_it() -> None:
    """Also a layer in several places."""
    chain = decompose(parse("model", "vgg_small+norm=batch+dropout=0.5").build((3, 16, 16), 4))
    assert chain.normalisation is None
    assert [step.pool is not None for step in chain.convolutions] == [False, True] * 3
    assert all(step.norm.num_features == step.layer.out_channels for step in chain.convolutions)
    assert all(type(step.activation) is nn.ReLU for step in chain.convolutions)
    assert [step.dropout for step in chain.dense] == [0.5, 0]
    assert [type(step.activation) for step in chain.dense] == [nn.ReLU, nn.Identity]
    relu = nn.ReLU()
    nested = nn.Sequential(nn.Conv2d(2, 2, 3), relu)
    chain = decompose(nn.Sequential(CONVOLUTION, relu, nested, nn.Flatten(), DENSE, relu))
    assert [step.activation for step in [*chain.convolutions, *chain.dense]] == [relu] * 3


@pytest.mark.parametrize(
    ("layers", "stranger"),
    [
        ([nn.ReLU()], "ReLU '0'"),
        ([nn.BatchNorm2d(1), CONVOLUTION], "BatchNorm2d '0'"),
        ([nn.MaxPool2d(2), CONVOLUTION], "MaxPool2d '0'"),
        ([CONVOLUTION, nn.Flatten(), DENSE, CONVOLUTION], "Conv2d '3'"),
        ([CONVOLUTION, nn.Flatten(), DENSE, nn.AvgPool2d(2)], "AvgPool2d '3'"),
        ([CONVOLUTION, nn.Dropout(0.5), nn.Flatten(), DENSE], "Dropout '1'"),
        ([CONVOLUTION, nn.Softmax(1)], "Softmax '1'"),
        ([CONVOLUTION, nn.Sequential(nn.ReLU(), nn.GELU())], "GELU '1.1'"),
        ([CONVOLUTION, nn.ReLU(), nn.BatchNorm2d(2)], "BatchNorm2d '2'"),
        ([CONVOLUTION, nn.MaxPool2d(2), nn.BatchNorm2d(2)], "BatchNorm2d '2'"),
        ([CONVOLUTION, nn.BatchNorm2d(2), nn.BatchNorm2d(2)], "BatchNorm2d '2'"),
        ([CONVOLUTION, nn.AvgPool2d(2), nn.ReLU()], "ReLU '2'"),
        ([CONVOLUTION, nn.ReLU(), nn.Tanh()], "Tanh '2'"),
        ([CONVOLUTION, nn.MaxPool2d(2), nn.MaxPool2d(2)], "MaxPool2d '2'"),
    ],
)
def test_a_layer_without_a_place_is_named(layers: list[nn.Module], stranger: str) -> None:
    with pytest.raises(IncompatibleError, match=f"cannot contain {stranger}$"):
        decompose(nn.Sequential(*layers))


def test_a_network_that_is_no_sequence_is_refused() -> None:
    with pytest.raises(IncompatibleError, match=r"ModuleDict, is not a torch\.nn\.Sequential"):
        decompose(nn.ModuleDict({"convolution": CONVOLUTION}))
