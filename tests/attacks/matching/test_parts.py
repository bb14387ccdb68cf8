from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from gleak.attacks.matching.distances import L2, Cosine
from gleak.attacks.matching.parts import LayerWeights
from gleak.attacks.matching.pieces import FormedPiece, weighted_pairs
from gleak.core.registry import parse


def gradients(victims: int = 2) -> dict[str, Tensor]:
    """Return gradients of three convolutions, a batch normalisation and a dense layer."""
    torch.manual_seed(0)
    shapes = {
        "0.weight": (2, 3, 3, 3),
        "1.weight": (2,),
        "1.bias": (2,),
        "2.weight": (2, 2, 1, 1),
        "3.weight": (2, 2, 3, 3),
        "3.bias": (2,),
        "4.weight": (5, 8),
        "4.bias": (5,),
    }
    return {name: torch.randn(victims, *shape) for name, shape in shapes.items()}


def test_weights_follow_equations_7_and_8():
    weights = LayerWeights(beta=5).of(gradients())
    expected = {"0": 1, "1": 1, "2": 3, "3": 5, "4": 3}
    for name, weight in weights.items():
        assert weight.tolist() == pytest.approx([expected[name[0]]] * 2)


@pytest.mark.parametrize("beta", [0.5, 2, 50])
@pytest.mark.parametrize("function", ["linear", "exponential", "logarithmic"])
def test_functions_go_through_both_points_and_bend_as_in_table_1(function: str, beta: float):
    along = LayerWeights(beta=beta, function=function).along(21)
    assert (along[0], along[-1]) == pytest.approx((1, beta))
    assert sorted(along, reverse=beta < 1) == along
    bend = torch.tensor(along, dtype=torch.float64).diff().diff().sum() * math.copysign(1, beta - 1)
    assert {"linear": abs(bend) < 1e-9, "exponential": bend > 0, "logarithmic": bend < 0}[function]


def test_zeros_make_a_convolution_count_more():
    received = gradients()
    received["2.weight"][1, 0] = 0
    modified = LayerWeights(beta=5).of(received)
    assert modified["2.weight"].tolist() == pytest.approx([3, 6])
    assert modified["4.weight"].tolist() == pytest.approx([3, 3])
    received["2.weight"][1] = 0
    assert LayerWeights(beta=5).of(received)["2.weight"].tolist() == pytest.approx([3, 3])
    plain = LayerWeights(beta=5, relu_modifier=False).of(received)
    assert plain["2.weight"].tolist() == pytest.approx([3, 3])


def test_networks_of_one_convolution_or_none():
    dense, convolution = torch.randn(1, 3, 4), torch.randn(1, 2, 3, 3, 3)
    for received in ({"dense": dense}, {"convolution": convolution, "dense": dense}):
        assert {float(weight) for weight in LayerWeights(beta=9).of(received).values()} == {1.0}


def test_weighted_distances_are_equation_6():
    """Compared with explicit sums, and with gradients times the roots of their weights."""
    dummies, received = gradients(), {n: v.flip(0) for n, v in gradients().items()}
    weights = LayerWeights(beta=7).of(received)
    pieces = [FormedPiece(name, dummies[name], received[name]) for name in dummies]
    roots = {name: weight.sqrt() for name, weight in weights.items()}

    def flat(values: dict[str, Tensor]) -> Tensor:
        return torch.cat([roots[n][:, None] * value.flatten(1) for n, value in values.items()], 1)

    cosine = nn.functional.cosine_similarity(flat(dummies), flat(received))
    assert torch.allclose(Cosine().measure(weighted_pairs(pieces, weights)), 1 - cosine, atol=1e-6)
    squares = (flat(dummies) - flat(received)).square().sum(1)
    assert torch.allclose(L2().measure(weighted_pairs(pieces, weights)), squares)


def test_every_convolution_of_resnet20_has_its_place():
    """Table I: 21 of them, with the two of the shortcuts."""
    network = parse("model", "resnet20").build((3, 32, 32), 10)
    received = {name: torch.ones(1, *value.shape) for name, value in network.named_parameters()}
    weights = LayerWeights(beta=21).of(received)
    found = [float(weights[name]) for name, value in received.items() if value.ndim == 5]
    assert found == pytest.approx(range(1, 22))
