"""A dense layer's gradient in factored form, compared with the same gradient materialised."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.attacks.matching import functions
from gleak.attacks.matching.distances import L2, Cosine, SignDistance
from gleak.attacks.matching.pieces import FormedPiece, OuterPiece, WeightedPair, weighted_pairs

QUANTITIES = ["squared_distance", "inner", "squared_norm", "target_squared_norm"]
sizes = st.integers(1, 6)


def draw(*shape: int, seed: int) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=stream, dtype=torch.double)


@pytest.mark.parametrize("entries", [1, 5, 12, 40, 2**18])
@given(victims=sizes, samples=sizes, rows=sizes, columns=sizes)
def test_quantities_and_slopes_are_those_of_the_formed_gradient(
    entries: int, victims: int, samples: int, rows: int, columns: int
):
    """Blocks of every kind: parts of a row, some rows, a victim, some victims, all of them."""
    output_gradients = draw(victims, samples, rows, seed=0).requires_grad_()
    inputs = draw(victims, samples, columns, seed=1).requires_grad_()
    target, weight = draw(victims, rows, columns, seed=2), draw(victims, seed=3)
    outer = OuterPiece("weight", output_gradients, inputs, target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "CPU_ENTRIES", entries)
        for quantity in QUANTITIES:
            values = [getattr(piece, quantity)() for piece in (outer, outer.formed())]
            torch.testing.assert_close(*values)
            if values[0].requires_grad:
                slopes = [
                    torch.autograd.grad((weight * value).sum(), (output_gradients, inputs))
                    for value in values
                ]
                torch.testing.assert_close(*slopes)


def test_the_distance_does_not_cancel_near_zero():
    """Expanded, the square of a residual of 1e-6 would be lost in single precision."""
    output_gradients, inputs = draw(1, 3, 40, seed=0).float(), draw(1, 3, 50, seed=1).float()
    residual = 1e-6 * draw(1, 40, 50, seed=2)
    target = ((output_gradients.double().mT @ inputs.double()) - residual).float()
    found = OuterPiece("weight", output_gradients, inputs, target).squared_distance()
    expected = (output_gradients.double().mT @ inputs.double() - target.double()).square().sum()
    assert found.item() == pytest.approx(expected.item(), rel=0.2)


def test_within_compares_the_chosen_entries_alone():
    output_gradients, inputs = draw(2, 3, 4, seed=0), draw(2, 3, 5, seed=1)
    target, sent = draw(2, 4, 5, seed=2), draw(2, 4, 5, seed=3) < 0
    outer = OuterPiece("w", output_gradients, inputs, target)
    gradient = outer.formed().gradient
    for piece in (outer, outer.formed()):
        chosen = piece.within(sent)
        wanted = ((gradient - target).square() * sent).sum((1, 2))
        torch.testing.assert_close(chosen.squared_distance(), wanted)
        torch.testing.assert_close(chosen.inner(), (gradient * target * sent).sum((1, 2)))
        torch.testing.assert_close(chosen.squared_norm(), (gradient * sent).square().sum((1, 2)))


VICTIMS = 2


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(VICTIMS, *shape, dtype=torch.double).requires_grad_()


@pytest.mark.usefixtures("kernels_of_either_device")
@pytest.mark.parametrize("distance", [L2(), Cosine(), SignDistance()])
def test_distances_and_slopes_are_those_of_the_pieces(distance: L2 | Cosine):
    torch.manual_seed(0)
    gradients = {"a": leaf(4, 3, 2, 2), "b": leaf(4)}
    factors = [leaf(3, 5), leaf(3, 6)]
    pieces = [FormedPiece(name, value, leaf(*value.shape[1:])) for name, value in gradients.items()]
    pieces.insert(1, OuterPiece("c", *factors, leaf(5, 6)))
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
