"""Products of many gradients at once, compared with those of one pair after the other."""

from __future__ import annotations

import pytest
import torch

from gleak.attacks.matching.distances import L2, Cosine, Signs
from gleak.attacks.matching.pieces import (
    FormedPiece,
    JointPair,
    OuterPiece,
    WeightedPair,
    weighted_pairs,
)

VICTIMS = 2


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(VICTIMS, *shape, dtype=torch.double).requires_grad_()


@pytest.mark.parametrize("distance", [L2(), Cosine(), Signs()])
def test_distances_and_slopes_are_those_of_the_pieces(distance: L2 | Cosine) -> None:
    torch.manual_seed(0)
    gradients = {"a": draw(4, 3, 2, 2), "b": draw(4)}
    factors = [draw(3, 5), draw(3, 6)]
    pieces = [FormedPiece(name, value, draw(*value.shape[1:])) for name, value in gradients.items()]
    pieces.insert(1, OuterPiece("c", *factors, draw(5, 6)))
    weights = {"a": torch.rand(VICTIMS).double(), "c": torch.rand(VICTIMS).double()}
    unknown = [*gradients.values(), *factors]
    separate = [
        WeightedPair([piece], weights.get(piece.name, torch.ones(VICTIMS))[None])
        for piece in pieces
    ]
    values = [distance.measure(pairs) for pairs in (weighted_pairs(pieces, weights), separate)]
    torch.testing.assert_close(*values)
    slopes = [
        torch.autograd.grad((value * torch.tensor([1, 3])).sum(), unknown) for value in values
    ]
    torch.testing.assert_close(*slopes)


def test_formed_gradients_become_one_pair() -> None:
    formed = [FormedPiece(name, draw(3), draw(3)) for name in "ab"]
    outer = OuterPiece("c", draw(3, 5), draw(3, 6), draw(5, 6))
    joint, other = weighted_pairs([formed[0], outer, formed[1]], {})
    assert isinstance(joint, JointPair)
    assert other is outer
    assert weighted_pairs([outer], {}) == [outer]
