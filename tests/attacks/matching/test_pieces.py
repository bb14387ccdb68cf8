"""A dense layer's gradient in factored form, compared with the same gradient materialised."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.attacks.matching import functions
from gleak.attacks.matching.distances import L2, Cosine, SignDistance
from gleak.attacks.matching.pieces import (
    Errors,
    FormedPiece,
    OuterPiece,
    WeightedPair,
    split_errors,
    weighted_pairs,
)
from gleak.attacks.matching.quantisation_cells import NearestCell, RandomCell, coded

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


def values_of(found: Sequence[Errors]) -> list[Tensor]:
    """Return squared errors and numbers of values, one after another."""
    return [value for one in found for value in (one.squared, one.values)]


@pytest.mark.parametrize("columns", [5, 40])
def test_what_was_sent_of_a_factored_gradient_is_that_of_the_formed_one(columns: int) -> None:
    """Scaled, and in a basis; with few columns, and with more than twice as many as samples."""
    output_gradients, inputs = draw(2, 3, 6, seed=0), draw(2, 3, columns, seed=1)
    outer = OuterPiece("w", output_gradients, inputs, draw(2, 6, columns, seed=2))
    factors, basis = draw(2, seed=3), torch.linalg.qr(draw(2, 6, 4, seed=4))[0]
    for change in (
        lambda piece: piece,
        lambda piece: piece.scaled(factors),
        lambda piece: piece.projected(basis),
        lambda piece: piece.projected(basis).scaled(factors),
    ):
        one, other = change(outer), change(outer.formed())
        torch.testing.assert_close(one.formed().gradient, other.gradient)
        torch.testing.assert_close(one.target, other.target)
        torch.testing.assert_close(one.counts, other.counts)
        torch.testing.assert_close(*(values_of(each.squared_errors()) for each in (one, other)))


def test_a_scaled_gradient_is_a_multiple_of_each_victims() -> None:
    piece = FormedPiece("w", draw(2, 3, 4, 5, seed=0), draw(2, 3, 4, 5, seed=1))
    found = piece.scaled(torch.tensor([2.0, -1.0]).double())
    torch.testing.assert_close(found.gradient[0], 2 * piece.gradient[0])
    torch.testing.assert_close(found.gradient[1], -piece.gradient[1])
    assert found.target is piece.target


def test_the_columns_of_a_kernel_are_compared_in_a_basis() -> None:
    piece = FormedPiece("w", draw(2, 6, 4, 5, seed=0), draw(2, 6, 4, 5, seed=1))
    basis = torch.linalg.qr(draw(2, 6, 3, seed=4))[0]
    found = piece.projected(basis)
    expected = (basis.mT @ piece.gradient.flatten(2)).flatten(1)
    torch.testing.assert_close(found.gradient.flatten(1), expected)
    assert found.counts.tolist() == [60, 60]


def test_squared_errors_are_split_by_the_span_of_the_inputs() -> None:
    """An error D^T A of other output gradients is in the span, and one beside A is not."""
    inputs = draw(1, 3, 40, seed=1)
    truth = draw(1, 3, 6, seed=0)
    beside = draw(1, 6, 40, seed=2)
    beside -= beside @ torch.linalg.pinv(inputs) @ inputs
    for error, place in ((draw(1, 3, 6, seed=5).mT @ inputs, 0), (beside, 1)):
        found = OuterPiece("w", truth, inputs, truth.mT @ inputs + error).squared_errors()
        expected = error.square().sum()
        torch.testing.assert_close(found[place].squared.sum(), expected, rtol=1e-4, atol=0)
        assert float(found[1 - place].squared.sum()) < 1e-3 * float(expected)
        assert [one.values[:, 0].tolist() for one in found] == [[3] * 6, [240 - 18]]
    sent = draw(1, 6, 40, seed=7) > -0.5
    masked = OuterPiece("w", truth, inputs, truth.mT @ inputs + beside).within(sent.to(beside))
    found = masked.squared_errors()
    assert sum(float(one.values.sum()) for one in found) == int(sent.sum())
    total = sum(one.squared.sum(0) for one in found)
    torch.testing.assert_close(total, masked.squared_distance())


@pytest.mark.parametrize("kind", ["whole", "masked", "scaled", "nearest", "random"])
def test_slopes_of_errors_of_a_factored_gradient_are_those_of_the_formed_one(kind: str) -> None:
    target, sent = draw(2, 6, 40, seed=2), (draw(2, 6, 40, seed=7) > -0.5).double()
    step = torch.tensor([0.7, 5], dtype=torch.double)
    codes = {"nearest": {"w": NearestCell(step)}, "random": {"w": RandomCell(step)}}

    def errors(output_gradients: Tensor, inputs: Tensor) -> Tensor:
        outer = OuterPiece("w", output_gradients, inputs, target)
        piece = coded([outer], codes[kind])[0] if kind in codes else outer
        if kind in {"masked", "scaled"}:
            piece = piece.within(sent)
        if kind == "scaled":
            piece = piece.scaled(torch.tensor([2.0, 0.5]).double())
        return torch.cat([each.squared.flatten() for each in piece.squared_errors()])

    factors = (draw(2, 3, 6, seed=0).requires_grad_(), draw(2, 3, 40, seed=1).requires_grad_())
    assert torch.autograd.gradcheck(errors, factors)


def test_gradients_of_clipped_samples_are_fitted_one_by_one() -> None:
    inputs, slopes = draw(2, 3, 40, seed=1), draw(2, 3, 6, seed=0)
    factors = torch.tensor([[0.3, 1.0, 0.6], [1.0, 0.2, 0.9]])
    target = (factors[..., None] * slopes).mT @ inputs
    pair = OuterPiece("w", slopes, inputs, target)
    assert float(pair.fitted().squared_distance().sum()) < 1e-6 * float(target.square().sum())
    assert float(pair.formed().fitted().squared_distance().sum()) > 1e-3


@pytest.mark.parametrize("masked", [False, True])
def test_equal_samples_have_finite_errors_in_their_span(masked: bool) -> None:
    """The products of their inputs with each other are a singular matrix."""
    inputs = draw(2, 1, 64, seed=0).float().repeat(1, 16, 1)
    mask = draw(2, 8, 64, seed=2) > (1 if masked else -9)
    residual = draw(2, 8, 64, seed=1).float() * mask
    sent_inputs = inputs[:, None] * mask[:, :, None]
    gram = (sent_inputs @ inputs.mT[:, None])[:, : 8 if masked else 1]
    squared, counts = residual.square().sum((1, 2)), mask.sum((1, 2)).float()
    within, outside = split_errors(squared, counts, residual @ inputs.mT, gram)
    one = sent_inputs[:, :, 0]
    expected = (residual * one).sum(2).square() / one.square().sum(2)
    torch.testing.assert_close(within.squared.T, expected, rtol=0.02, atol=1e-4)
    assert outside.squared.isfinite().all()
