"""Codes of gradients: what may have been computed, given what was sent."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gleak.artifacts.encodings import Encoded
from gleak.artifacts.private import Private
from gleak.attacks.matching.distances import (
    LEAST_PROBABILITY,
    CodedPiece,
    Likelihood,
    NearestCell,
    QuantisationCell,
    RandomCell,
    SignCell,
    SignDistance,
    cells_of,
    coded,
)
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.pieces import FormedPiece, OuterPiece
from gleak.core.registry import parse
from gleak.testing.tiny_cells import TinyCells

CPU = torch.device("cpu")
ROUNDED = ["quantize", "qsgd", "qsgd+norm=l2", "quantize+bits=4", "quantize+scope=global"]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def sent(defense: str, value: Tensor, seed: int = 0) -> Encoded:
    """Encode the update of one client, Shape (R, *shape)."""
    stream = torch.Generator().manual_seed(seed)
    found: Encoded = parse("defense", defense).protect({"w": value}, stream, {})["w"]
    return found


def piece_of(defense: str, value: Tensor, guess: Tensor) -> CodedPiece:
    encoded = sent(defense, value[None])
    cells = {"w": cells_of({"w": encoded}, CPU)["w"].at((slice(None), 0))}
    target = torch.from_numpy(encoded.decode())[:, 0]
    (piece,) = coded([FormedPiece("w", guess[None], target)], cells)
    assert isinstance(piece, CodedPiece)
    return piece


@pytest.mark.parametrize("defense", ["quantize", "quantize+bits=2", "quantize+scope=global"])
def test_every_value_of_a_cell_is_certain(defense: str):
    value = drawn(7, 11)
    step = value.abs().max() / parse("defense", defense).steps
    levels = (value / step).round()
    for guess in (value, (levels + 0.49 * drawn(7, 11, seed=1).cos()) * step):
        assert piece_of(defense, value, guess).unlikelihood() < 1e-9
    outside = levels * step + 0.75 * step
    assert piece_of(defense, value, outside).unlikelihood() == pytest.approx(77 / 16, rel=1e-4)


def test_random_rounding_has_the_probability_with_which_it_was_drawn():
    """Compared with the frequencies of the defence itself."""
    value = torch.linspace(-1, 1, 41)[None].repeat(4000, 1)
    encoded = sent("qsgd", value[None])
    code = torch.from_numpy(encoded.decode())[0, 0]
    step = torch.tensor([1 / 3])
    for level in (-1 / 3, 0.0, 2 / 3):
        target = torch.full((1, 41), level)
        probability = (-RandomCell(step).unlikelihood(value[:1], target)).exp()[0]
        frequency = ((code - level).abs() < 1e-6).double().mean(0)
        likely = probability > LEAST_PROBABILITY
        assert likely.any()
        expected = frequency[likely].float()
        torch.testing.assert_close(probability[likely], expected, atol=0.04, rtol=0)


def test_the_logarithm_is_continued_without_a_jump_or_a_kink():
    edge = 1 - LEAST_PROBABILITY
    values = torch.tensor([[edge - 1e-3, edge + 1e-3, 4.0]], dtype=torch.double).requires_grad_()
    cost = RandomCell(torch.ones(1).double()).unlikelihood(values, torch.zeros(1, 3).double())
    (slope,) = torch.autograd.grad(cost.sum(), values)
    cost = cost.detach()
    assert float(cost[0, 1] - cost[0, 0]) == pytest.approx(2e-3 / LEAST_PROBABILITY, rel=0.02)
    assert float(slope[0, 1]) == pytest.approx(float(slope[0, 0]), rel=0.03)
    assert slope[0, 2] == slope[0, 1]


def test_signs_ask_for_no_magnitude():
    value = drawn(5, 6)
    value[0] = 0
    for guess in (value, 1e-6 * value, value.abs().sqrt() * value.sign()):
        assert piece_of("signsgd", value, guess).unlikelihood() < 1e-9
    wrong = value.clone()
    wrong[1] *= -1
    share = wrong[1].square().sum() / wrong.square().mean()
    for guess in (wrong, 1e3 * wrong):
        found = piece_of("signsgd", value, guess).unlikelihood()
        torch.testing.assert_close(found, share[None], rtol=1e-4, atol=0)


@pytest.mark.parametrize("defense", [*ROUNDED, "signsgd"])
def test_the_truth_is_likelier_than_other_gradients(defense: str):
    value, other = drawn(9, 40), drawn(9, 40, seed=3)
    measure = Likelihood().measure
    truth = measure([piece_of(defense, value, value)])
    assert truth < measure([piece_of(defense, value, other)])
    assert truth < measure([piece_of(defense, value, -value)])


@pytest.mark.parametrize("cell", [NearestCell, RandomCell])
def test_a_code_in_another_unit_says_the_same(cell: type[NearestCell | RandomCell]):
    """The mean gradient of local steps is a negative multiple of the change of the weights."""
    gradient, target, code = drawn(2, 8), drawn(2, 8, seed=1), cell(torch.tensor([0.5, 2.0]))
    torch.testing.assert_close(
        code.scaled(-3).unlikelihood(-3 * gradient, -3 * target),
        code.unlikelihood(gradient, target),
    )


def test_without_a_code_the_distance_is_relative_to_each_parameter():
    gradients, inputs, target = drawn(2, 3, 4), drawn(2, 3, 5, seed=1), drawn(2, 4, 5, seed=2)
    outer = OuterPiece("w", gradients, inputs, target)
    bias = FormedPiece("b", drawn(2, 4), 9 * drawn(2, 4, seed=4))
    found = Likelihood().measure([outer, bias])
    errors = [
        (piece.gradient - piece.target).flatten(1).square().sum(1)
        / piece.target.flatten(1).square().mean(1)
        for piece in (outer.formed(), bias)
    ]
    torch.testing.assert_close(found, sum(errors) / 24)


def test_a_gradient_of_zeros_is_certain_of_its_zeros():
    cells: list[QuantisationCell] = [
        NearestCell(torch.zeros(1)),
        RandomCell(torch.zeros(1)),
        SignCell(),
    ]
    nothing = torch.zeros(1, 4)
    assert all(cell.unlikelihood(nothing, nothing).sum() == 0 for cell in cells)


@pytest.mark.parametrize("defense", ["quantize", "qsgd", "signsgd"])
@pytest.mark.parametrize("model", ["lenet+width=4", "mlp"])
def test_the_truth_has_the_code_that_its_client_sent(model: str, defense: str, cells: TinyCells):
    """From the file of an update: the change of the weights after local steps."""
    client = "fedavg+victims=2+batch_size=2+local_steps=2+local_lr=0.1+sends=weights"
    folder = cells.simulate("image", model=model, client=client, defense=defense)
    attack = parse("attack", "rog+code=pixels+distance=likelihood+labels=known")
    problem = GradientMatching.of(cells.observe(folder, attack), attack.parts())
    assert set(problem.cells) == set(problem.observed)
    inputs = torch.from_numpy(Private.read(folder / "private.h5").inputs).flatten(1)
    order = inputs.unflatten(1, (2, -1)).flip(1).flatten(1)
    found = torch.minimum(problem.evaluate(inputs).distance, problem.evaluate(order).distance)
    possible = -math.log(LEAST_PROBABILITY) if defense == "qsgd" else 1e-6
    assert (found < possible).all()
    assert (problem.evaluate(1 - inputs).distance > found).all()


def test_outer_products_are_measured_as_formed_ones():
    outer = OuterPiece("w", drawn(3, 2, 4), drawn(3, 2, 5, seed=1), drawn(3, 4, 5, seed=2).sign())
    formed = outer.formed()
    expected = ((2.5 * formed.gradient).tanh() - outer.target).square().sum((1, 2))
    for piece in (outer, formed):
        torch.testing.assert_close(SignDistance(gain=2.5).measure([piece]), expected)


def test_a_zero_gradient_has_the_distance_one_relative_to_the_scale():
    target = drawn(2, 6).sign()
    piece = FormedPiece("w", torch.zeros(2, 6), target)
    torch.testing.assert_close(SignDistance().measure([piece]), SignDistance().scale([target]))
