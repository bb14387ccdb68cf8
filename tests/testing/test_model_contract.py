"""Networks of every kind through clients, matching, label inference and scoring."""

from __future__ import annotations

import math

import pytest
from torch import nn

from gleak.core.errors import IncompatibleError
from gleak.testing.model_contract import check_model
from tests.zoo import CLASSES, FORMS, NETWORKS, SHAPE

QUICK = {
    *("attention weights", "LSTM", "spectral norm", "orthogonal weight", "heads"),
    *("frozen weight, trained bias", "overwrites activations", "weight used twice"),
    *("tied weights", "3-d convolution", "batch norm", "dropout of three kinds"),
    *("contrastive head", "head registered first", "scalar first", "frozen but a scalar"),
    *("unused recurrent layer first", "first weight transposed", "parameter list"),
    "double, batch norm",
}
"""One network of each kind; the others are slow."""


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name in NETWORKS
        if name not in FORMS["no graph"]
    ],
)
def test_what_clients_send_is_repeated_exactly(name: str) -> None:
    check_model(lambda *_: NETWORKS[name](), SHAPE, CLASSES)


@pytest.mark.parametrize("shape", [(1, 5, 9), (2, 7), (11,)])
def test_samples_of_other_shapes_serve(shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    check_model(
        lambda *_: nn.Sequential(nn.Flatten(), nn.Linear(size, 5), nn.Tanh(), nn.Linear(5, 4)),
        shape,
        4,
    )


@pytest.mark.parametrize("name", FORMS["no graph"])
def test_networks_without_a_graph_are_refused(name: str) -> None:
    with pytest.raises(IncompatibleError, match=r"layer 'body\.\d' .* computes without a graph"):
        check_model(lambda *_: NETWORKS[name](), SHAPE, CLASSES)


def test_networks_that_are_refused_are_refused_here() -> None:
    with pytest.raises(IncompatibleError, match=r"Hardsigmoid.*no second derivative"):
        check_model(
            lambda *_: nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.Hardsigmoid()), SHAPE, 6
        )
