"""Parameters that are left out of the match."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gleak.attacks.matching.distances import L2, Cosine
from gleak.attacks.matching.gradient_matching import GradientMatching, skipped_parameters
from gleak.core.errors import IncompatibleError

SHAPE = (3, 8, 8)
NETWORK = nn.Sequential(
    nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 5), nn.Sigmoid(), nn.Linear(5, 4)
).eval()
NAMES = [name for name, _ in NETWORK.named_parameters()]


@pytest.mark.parametrize(
    ("skip", "names"),
    [
        (None, set()),
        ("2", {"2.weight", "2.bias"}),
        ("first_dense", {"2.weight", "2.bias"}),
        ("classifier", {"4.weight", "4.bias"}),
        ("2.weight-4", {"2.weight", "4.weight", "4.bias"}),
        ("0-classifier", {"0.weight", "0.bias", "4.weight", "4.bias"}),
    ],
)
def test_layers_are_named_or_found(skip: str | None, names: set[str]) -> None:
    assert skipped_parameters(NETWORK, SHAPE, NAMES, skip) == names


@pytest.mark.parametrize(
    ("skip", "fault"),
    [
        ("clasifier", "skip=clasifier: unknown 'clasifier'; did you mean 'classifier'?"),
        ("2.weights", "did you mean '2.weight'?"),
        ("0-2-4", "leaves out all parameters"),
    ],
)
def test_an_unknown_layer_is_named(skip: str, fault: str) -> None:
    with pytest.raises(IncompatibleError) as caught:
        skipped_parameters(NETWORK, SHAPE, NAMES, skip)
    assert fault in str(caught.value)


def test_a_network_without_dense_layers_has_no_first_one() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()).eval()
    with pytest.raises(IncompatibleError, match="no dense layer"):
        skipped_parameters(network, SHAPE, ["0.weight", "0.bias"], "first_dense")


@pytest.mark.parametrize("distance", [L2(), Cosine()])
def test_what_a_skipped_layer_sends_does_not_matter(
    distance: Any, make_observation: Callable[..., Any], make_parts: Callable[..., Any]
) -> None:
    observation, inputs, _ = make_observation()
    update = {**observation.update}
    last = list(update)[-1].rpartition(".")[0]
    for name in update:
        if name.startswith(last):
            update[name] = torch.rand(update[name].shape) * 100
    spoilt = dataclasses.replace(observation, update=update)
    points = inputs.flatten(1) / 2
    found = [
        GradientMatching.of(seen, make_parts(skip=last, distance=distance)).evaluate(points)
        for seen in (observation, spoilt)
    ]
    torch.testing.assert_close(found[0].distance, found[1].distance)
    torch.testing.assert_close(found[0].gradient, found[1].gradient)
