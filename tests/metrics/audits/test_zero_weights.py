"""Share of weights that are zero: of honest, naively crafted and fished parameters."""

from __future__ import annotations

import numpy as np
import pytest

from gleak.core.registry import parse
from gleak.metrics.audits.base import Broadcast
from gleak.metrics.audits.zero_weights import ZeroWeights
from gleak.metrics.base import MetricUnavailable
from tests.metrics.subjects import model_of

CLASSES = 10


def share_of(crafting: str) -> float:
    shape = (1, 28, 28)
    network = parse("model", "lenet5").build(shape, CLASSES)
    parse("crafting", crafting).craft_network(network, shape, CLASSES, 0)
    parameters = {name: value.detach().numpy() for name, value in network.named_parameters()}
    return ZeroWeights().measure(Broadcast(model_of(parameters)))


@pytest.mark.parametrize(
    ("crafting", "share"),
    [
        pytest.param("fishing", 1 - 1 / CLASSES, id="all-rows-of-the-last-layer-but-the-target's"),
        pytest.param("mkor+hiding=naive", 0.999, id="all-weights-but-the-paths"),
        pytest.param("mkor", 0, id="none"),
    ],
)
def test_zeros_are_those_that_crafting_sets(crafting: str, share: float) -> None:
    assert share_of(crafting) == pytest.approx(share, abs=1e-3)


def test_the_layer_with_most_zeros_counts_and_biases_do_not() -> None:
    parameters = {
        "0.weight": np.array([[0.0, 1.0], [1.0, 1.0]]),
        "0.bias": np.zeros(2),
        "2.weight": np.array([[0.0, 1.0], [0.0, 1.0]]),
    }
    assert ZeroWeights().measure(Broadcast(model_of(parameters))) == 0.5


def test_without_layers_there_is_no_value() -> None:
    with pytest.raises(MetricUnavailable, match="no layer"):
        ZeroWeights().measure(Broadcast(model_of({"0.bias": np.zeros(2)})))
