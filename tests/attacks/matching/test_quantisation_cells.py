"""Codes of gradients: what may have been computed, given what was sent."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gleak.artifacts.encodings import Encoded
from gleak.artifacts.private import Private
from gleak.attacks.matching.distances import Likelihood, ProfileLikelihood, SquaredError
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.pieces import Errors, FormedPiece, OuterPiece
from gleak.attacks.matching.quantisation_cells import (
    LEAST_PROBABILITY,
    ClippedCell,
    CodedPiece,
    NearestCell,
    QuantisationCell,
    RandomCell,
    SignCell,
    cells_of,
    coded,
)
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


@pytest.mark.parametrize(("defense", "cell"), [("quantize", NearestCell), ("qsgd", RandomCell)])
def test_values_are_coded_as_by_the_defence(
    defense: str, cell: type[NearestCell | RandomCell]
) -> None:
    """In distribution, of a code that rounds at random."""
    value = torch.linspace(-1, 1, 41)[None].repeat(4000, 1)
    decoded = torch.from_numpy(sent(defense, value[None]).decode())[0, 0]
    code = cell(torch.tensor([1 / 3]))
    own = code.coded(value.view(1, -1), torch.rand(1, value.numel())).view_as(value)
    torch.testing.assert_close(own.mean(0), decoded.mean(0), atol=0.03, rtol=0)
    torch.testing.assert_close(own.std(0), decoded.std(0), atol=0.03, rtol=0)


def test_signs_and_cut_values_are_coded_by_their_definition() -> None:
    value, draws = drawn(2, 8), torch.zeros(2, 8)
    torch.testing.assert_close(SignCell().coded(value, draws), value.sign())
    cut = ClippedCell(torch.tensor([0.5, 2.0])).coded(value, draws)
    assert cut[0].abs().max() == 0.5
    within = value[0].abs() <= 0.5
    torch.testing.assert_close(cut[0, within], value[0, within])
    torch.testing.assert_close(cut[1], value[1].clamp(-2, 2))
    zero = torch.zeros(1, 3)
    for kind in (NearestCell, RandomCell):
        torch.testing.assert_close(kind(torch.zeros(1)).coded(zero, zero), zero)


@pytest.mark.parametrize("cell", [NearestCell, RandomCell])
def test_a_code_in_another_unit_says_the_same(cell: type[NearestCell | RandomCell]):
    """The mean gradient of local steps is a negative multiple of the change of the weights."""
    gradient, target, code = drawn(2, 8), drawn(2, 8, seed=1), cell(torch.tensor([0.5, 2.0]))
    torch.testing.assert_close(
        code.scaled(-3).unlikelihood(-3 * gradient, -3 * target),
        code.unlikelihood(gradient, target),
    )


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


def test_a_value_that_vanishes_has_no_sign() -> None:
    signs = torch.tensor([[1.0, -1.0, 0.0, 1.0]])
    inactive = SignCell().residual(torch.tensor([[0.5, 0.0, 0.0, 0.0]]), signs)
    assert inactive.tolist() == [[0, 1, 0, -1]]


@pytest.mark.parametrize("defense", ["quantize", "quantize+bits=2", "signsgd"])
def test_gradients_of_one_code_are_as_probable(defense: str) -> None:
    value = drawn(7, 11)
    encoded = sent(defense, value[None])
    target = torch.from_numpy(encoded.decode())[:, 0]
    guesses = [value, 3 * value] if defense == "signsgd" else [value, target[0]]
    for distance in (SquaredError(), ProfileLikelihood(), ProfileLikelihood(clipping="update")):
        inside = [float(distance.measure([piece_of(defense, value, one)])) for one in guesses]
        assert inside == pytest.approx([0, 0], abs=1e-3)
        assert float(distance.measure([piece_of(defense, value, -value)])) > 0.5


def test_the_distance_to_a_cell_is_zero_inside_and_rises_outside() -> None:
    cell, target = NearestCell(torch.tensor([0.5])), torch.zeros(1, 6)
    values = torch.tensor([[-0.25, 0.0, 0.2, 0.3, 0.75, -1.25]])
    expected = torch.tensor([[0, 0, 0, 0.05, 0.5, -1.0]])
    torch.testing.assert_close(cell.residual(values, target), expected)


def of_rows(change: Tensor, step: float = 0.5) -> list[Errors]:
    """Errors of one victim's rounded update, by output gradients of which some are changed."""
    inputs, truth = drawn(1, 3, 400, seed=1).double(), drawn(1, 3, 6).double()
    cell = NearestCell(torch.full((1,), step, dtype=torch.double))
    gradient = truth.mT @ inputs
    values = cell.coded(gradient.flatten(1), torch.zeros(1, 2400)).view_as(gradient)
    (piece,) = coded([OuterPiece("w", truth + change, inputs, values)], {"w": cell})
    return list(piece.squared_errors())


def test_a_unit_active_by_mistake_is_an_error_in_the_span_of_the_inputs() -> None:
    """So it is without rounding, whatever the inputs are; other rows stay certain."""
    change = torch.zeros(1, 3, 6).double()
    change[0, :, 2] = 0.4
    within, outside = of_rows(change)
    inputs = drawn(1, 3, 400, seed=1).double()
    expected = (change.mT @ inputs).square().sum(2)[0]
    torch.testing.assert_close(within.squared[:, 0], expected, rtol=0.1, atol=1e-9)
    assert float(outside.squared) < 0.01 * float(expected.sum())
    assert all(float(one.squared.sum()) == 0 for one in of_rows(0 * change))


def test_of_values_smaller_than_their_rounding_the_projection_tells_too_little() -> None:
    """Then the error is that of the values outside of their cells alone."""
    change = torch.zeros(1, 3, 6).double()
    change[0, :, 2] = 4
    inputs, truth = drawn(1, 3, 400, seed=1).double(), drawn(1, 3, 6).double()
    cell = NearestCell(torch.full((1,), 20, dtype=torch.double))
    gradient, guess = ((values.mT @ inputs).flatten(1) for values in (truth, truth + change))
    expected = cell.residual(guess, cell.coded(gradient, gradient)).square().sum()
    found = sum(one.squared.sum() for one in of_rows(change, step=20))
    torch.testing.assert_close(found, expected)


def test_errors_of_rounded_rows_are_continuous() -> None:
    """As a change grows in smaller steps, so do its errors, also where a row is first moved."""
    change = torch.zeros(1, 3, 6).double()
    change[0, 0, 2] = 1

    def largest_step(count: int) -> Tensor:
        found = [of_rows(step * change) for step in torch.linspace(0.05, 0.4, count)]
        errors = torch.stack([torch.cat([one.squared for one in each]) for each in found])
        return errors.diff(dim=0).abs().amax(0)

    assert (largest_step(3000) <= 0.2 * largest_step(300)).all()
