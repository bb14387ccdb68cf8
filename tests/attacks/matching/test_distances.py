"""Distances between gradients, compared with their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from gleak.attacks.matching.distances import (
    ROUNDING,
    EstimatedScale,
    Likelihood,
    ProfileLikelihood,
    SignDistance,
    SquaredError,
)
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.pieces import FormedPiece, OuterPiece
from gleak.core.registry import parse
from gleak.testing.tiny_cells import TinyCells


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


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


CLIPPED = [SquaredError(clipping="update"), ProfileLikelihood(clipping="update", shared=3)]


def double(*shape: int, seed: int) -> Tensor:
    return drawn(*shape, seed=seed).double()


def two_parameters(noise: float = 0.3) -> list[FormedPiece]:
    """Pairs of two victims, whose noise is twice as large in the second parameter."""
    pieces = []
    for number, shape in enumerate([(2, 3, 4), (2, 5)]):
        gradient = double(*shape, seed=2 * number)
        error = (number + 1) * noise * double(*shape, seed=2 * number + 1)
        pieces.append(FormedPiece(f"p{number}", gradient, gradient + error))
    return pieces


def profiled(pairs: list[tuple[np.ndarray, np.ndarray]], shared: float) -> float:
    """Compute the formula of `ProfileLikelihood`, of what was sent and gradients."""
    values = sum(u.size for u, _ in pairs)
    unit = sum((u**2).sum() for u, _ in pairs) / values
    errors = [((u - g) ** 2).sum() / unit for u, g in pairs]
    mean = sum(errors) / values
    found = values / 2 * (math.log(mean + ROUNDING) - math.log(ROUNDING))
    for (u, _), error in zip(pairs, errors, strict=True):
        excess = (error / mean + shared) / (u.size + shared)
        found += (u.size + shared) / 2 * math.log(excess)
    return found


@pytest.mark.parametrize("shared", [0.5, 1000])
def test_the_profile_likelihood_is_its_formula(shared: float) -> None:
    pieces = two_parameters()
    found = ProfileLikelihood(shared=shared).measure(pieces)
    for victim in range(2):
        pairs = [(p.target[victim].numpy(), p.gradient[victim].numpy()) for p in pieces]
        assert float(found[victim]) == pytest.approx(profiled(pairs, shared), rel=1e-9)


def test_a_clipped_updates_scale_is_that_of_least_squares() -> None:
    pieces = two_parameters()
    for victim in range(2):
        pairs = [(p.target[victim].numpy(), p.gradient[victim].numpy()) for p in pieces]
        factor = sum((u * g).sum() for u, g in pairs) / sum((g * g).sum() for _, g in pairs)
        scaled = [(u, factor * g) for u, g in pairs]
        found = CLIPPED[1].measure(pieces)[victim]
        assert float(found) == pytest.approx(profiled(scaled, 3), rel=1e-9)


def test_each_clipped_parameter_has_a_scale() -> None:
    pieces = two_parameters()
    stretched = [
        FormedPiece(one.name, factor * one.gradient, one.target)
        for one, factor in zip(pieces, (0.1, 7), strict=True)
    ]
    measure = ProfileLikelihood(clipping="parameter").measure
    torch.testing.assert_close(measure(stretched), measure(pieces))
    measure = ProfileLikelihood(clipping="update").measure
    assert (measure(stretched) > measure(pieces)).all()


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_balanced_errors_are_relative_to_each_parameters_own_norm(balance: float) -> None:
    pieces = two_parameters(0.1)
    norms = torch.stack([one.target_squared_norm() for one in pieces])
    relative = (
        torch.stack([(one.gradient - one.target).square().flatten(1).sum(1) for one in pieces])
        / norms
    )
    expected = (relative * (norms / norms.sum(0)) ** (1 - balance)).sum(0)
    torch.testing.assert_close(SquaredError(balance=balance).measure(pieces), expected)


@pytest.mark.parametrize("distance", CLIPPED)
@pytest.mark.parametrize("factor", [1e-4, 20])
def test_what_was_sent_has_no_unit_if_clients_clip(distance: EstimatedScale, factor: float) -> None:
    pieces = two_parameters()
    sent = [FormedPiece(one.name, one.gradient, factor * one.target) for one in pieces]
    scaled = [FormedPiece(one.name, factor * one.gradient, one.target) for one in pieces]
    expected = distance.measure(pieces)
    torch.testing.assert_close(distance.measure(sent), expected)
    torch.testing.assert_close(distance.measure(scaled), expected)
    assert (SquaredError().measure(scaled) > SquaredError().measure(pieces)).all()


@pytest.mark.parametrize("distance", [SquaredError(), ProfileLikelihood(), *CLIPPED])
def test_an_opposite_gradient_explains_nothing(distance: EstimatedScale) -> None:
    opposite = [FormedPiece(one.name, -one.gradient, one.target) for one in two_parameters(0.1)]
    silent = [FormedPiece(one.name, 0 * one.gradient, one.target) for one in opposite]
    if distance.clipping:
        torch.testing.assert_close(distance.measure(opposite), distance.measure(silent))
    assert (distance.measure(opposite) >= distance.measure(silent) * (1 - 1e-9)).all()
    nothing = SquaredError(clipping=distance.clipping).measure(silent)
    torch.testing.assert_close(nothing, torch.ones_like(nothing))


@pytest.mark.parametrize("distance", [SquaredError(), ProfileLikelihood(), *CLIPPED])
def test_it_is_zero_for_what_was_sent_and_grows_with_the_error(distance: EstimatedScale) -> None:
    found = [distance.measure(two_parameters(noise)) for noise in (0, 1e-7, 1e-4, 1e-2, 0.3, 1)]
    torch.testing.assert_close(found[0], torch.zeros_like(found[0]), atol=1e-3, rtol=0)
    assert (torch.stack(found).diff(dim=0) > 0).all()


def test_noise_of_one_parameter_alone_is_likelier_than_the_same_in_all() -> None:
    """For equal sums of squared errors; without a prior at the mean of all as much as can be."""
    counts, of_rows = torch.tensor([[50.0], [50.0]]), torch.zeros(2, 1, dtype=torch.bool)
    uneven, even = torch.tensor([[10.0], [1.0]]), torch.tensor([[5.5], [5.5]])
    gains = [
        float(
            distance.of_errors(even, counts, of_rows) - distance.of_errors(uneven, counts, of_rows)
        )
        for distance in (ProfileLikelihood(shared=0), ProfileLikelihood(shared=50))
    ]
    assert gains[0] > gains[1] > 0


@pytest.mark.parametrize("silent", [0, 190])
def test_few_wrong_units_do_not_hide_how_well_the_rest_is_explained_and_all_do(silent: int) -> None:
    """Units without gradients do not count as explained ones."""
    counts = torch.tensor([*[1.0] * (10 + silent), 40_000.0])[:, None]
    of_rows = counts == 1

    def cost(wrong: int, error: float, rest: float) -> float:
        rows = [*[error] * wrong, *[1e-9] * (10 - wrong), *[0.0] * silent]
        errors = torch.tensor([*rows, rest])[:, None]
        return float(ProfileLikelihood().of_errors(errors, counts, of_rows))

    assert cost(1, 2.9, 4e-6) < cost(1, 0.25, 7e-4)
    assert cost(10, 2.9, 4e-6) > cost(10, 0.25, 7e-4)


def test_less_than_a_nat_is_told_in_the_likelihood_of_millions_of_values() -> None:
    counts, of_rows = torch.tensor([[3e6]]), torch.tensor([[False]])
    costs = [ProfileLikelihood().of_errors(e * counts, counts, of_rows) for e in (0.9, 0.9 + 4e-7)]
    expected = 1.5e6 * 4e-7 / 0.9
    assert float(costs[1] - costs[0]) == pytest.approx(expected, rel=0.2)


def test_a_unit_active_by_mistake_costs_less_than_as_much_noise() -> None:
    """And one of ten units less than all ten, each as wrong."""
    inputs, slopes = double(1, 1, 200, seed=1), double(1, 1, 10, seed=2)
    observed = slopes.mT @ inputs + 0.1 * double(1, 10, 200, seed=3)

    def cost(wrong: int, distance: EstimatedScale) -> float:
        units = torch.arange(10) < wrong
        own = OuterPiece("w", slopes.where(~units, 0), inputs, observed)
        right = OuterPiece("w", slopes, inputs, observed)
        return float(distance.measure([own]) - distance.measure([right]))

    bounded, squared = ProfileLikelihood(), ProfileLikelihood(row=1e6)
    assert 0 < cost(1, bounded) < cost(10, bounded)
    assert cost(1, bounded) < cost(1, squared) / 3


@pytest.mark.parametrize("distance", [SquaredError(), ProfileLikelihood(), *CLIPPED])
def test_its_slope_is_that_of_finite_differences(distance: EstimatedScale) -> None:
    pieces = two_parameters()
    direction = [double(*one.gradient.shape, seed=9) for one in pieces]

    def at(step: float) -> Tensor:
        moved = zip(pieces, direction, strict=True)
        return distance.measure(
            [FormedPiece(one.name, one.gradient + step * own, one.target) for one, own in moved]
        ).sum()

    step = torch.zeros((), dtype=torch.double, requires_grad=True)
    (slope,) = torch.autograd.grad(at(step), step)
    expected = float(at(1e-6) - at(-1e-6)) / 2e-6
    assert float(slope) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("distance", [SquaredError(), ProfileLikelihood(), *CLIPPED])
def test_values_that_were_not_sent_do_not_count(distance: EstimatedScale) -> None:
    """The distance of masked gradients is that of the values sent, one after another."""
    first, second = two_parameters()
    mask = double(3, 4, seed=5) > 0
    masked = first.within(mask.expand(2, 3, 4))
    compact = FormedPiece("p0", first.gradient[:, mask], first.target[:, mask])
    assert masked.counts.tolist() == [int(mask.sum())] * 2
    found = distance.measure([masked, second])
    torch.testing.assert_close(found, distance.measure([compact, second]))


@pytest.mark.parametrize("distance", [SquaredError(), ProfileLikelihood(), *CLIPPED])
def test_products_with_a_basis_are_compared_in_it(distance: EstimatedScale) -> None:
    first, second = two_parameters()
    basis = torch.linalg.qr(double(2, 3, 2, seed=6))[0]
    projected = first.projected(basis)
    assert projected.counts.tolist() == [8, 8]
    changed = FormedPiece("p0", first.gradient, first.target + 5 * outside(basis, first.target))
    torch.testing.assert_close(
        distance.measure([changed.projected(basis), second]), distance.measure([projected, second])
    )


def outside(basis: Tensor, values: Tensor) -> Tensor:
    return values - basis @ (basis.mT @ values)


@pytest.mark.parametrize(("clipping", "model"), [("update", "mlp"), (None, "lenet+width=4")])
def test_the_scale_is_unknown_where_clients_clip(
    clipping: str | None, model: str, cells: TinyCells
) -> None:
    defense = "dp+sigma=0" if clipping else "none"
    attack = parse("attack", "map")
    seen = cells.observe(cells.simulate("image", model=model, defense=defense), attack)
    assert seen.protocol.clipping == clipping
    problem = GradientMatching.of(seen, attack.parts())
    assert problem.parts.distance == ProfileLikelihood(clipping=clipping)
