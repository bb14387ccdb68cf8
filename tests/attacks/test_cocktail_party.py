"""What holds for every attack by the objective of the cocktail party attack."""

from __future__ import annotations

import pytest
import torch

from gleak.attacks.cpa import CocktailParty
from gleak.core.registry import load, parse
from gleak.experiments.axis_labels import setting
from gleak.runtime.checkpointing import Journal
from gleak.unmixing.independent_components import LAPLACIAN, fixed_point
from gleak.unmixing.mixtures import Mixture, whiten

NAMES = sorted(n for n, cls in load("attack").items() if issubclass(cls, CocktailParty))
SHAPE, FEATURES, COUNT = (1, 5, 8), 40, 3
STREAM = torch.Generator().manual_seed(0)
BACKS = torch.randn(2, 9, COUNT, generator=STREAM)
SOURCES = torch.randn(2, COUNT, FEATURES, generator=STREAM).relu()
MIXTURE = Mixture(BACKS @ SOURCES, BACKS.sum(2))
WHITE = whiten(MIXTURE.weight, COUNT)
MATRICES = torch.randn(2, COUNT, COUNT, generator=STREAM)
MILD = "mi=0.3+temperature=3+lr=0.01"

each_attack = pytest.mark.parametrize("name", NAMES)


def value(text: str) -> torch.Tensor:
    return parse("attack", text).objective(WHITE, SHAPE).evaluate(MATRICES)[0].double()


@each_attack
def test_every_weight_has_its_term(name: str) -> None:
    """The objective is linear in each weight; a weight of zero leaves its term out."""
    spec = parse("attack", name)
    assert len(spec.objective(WHITE, SHAPE).terms) == len(spec.weights)
    for weight in spec.weights:
        at = [value(f"{name}+{weight}={number}") for number in (0, 1, 2)]
        assert (at[1] != at[0]).all(), weight
        torch.testing.assert_close(at[2] + at[0], 2 * at[1], rtol=1e-5, atol=1e-5)
        left = parse("attack", f"{name}+{weight}=0").objective(WHITE, SHAPE).terms
        assert len(left) == len(spec.weights) - 1


@each_attack
def test_rows_that_depend_cost_more_at_a_higher_temperature(name: str) -> None:
    assert (value(f"{name}+temperature=9") > value(f"{name}+temperature=3")).all()


@each_attack
@pytest.mark.parametrize("initial", ["identity", "fastica"])
def test_the_search_begins_where_it_is_told_to(name: str, initial: str) -> None:
    spec = parse("attack", f"{name}+initial={initial}")
    expected = {
        "identity": torch.eye(COUNT).expand(2, COUNT, COUNT),
        "fastica": fixed_point(WHITE.signals[:, :, None], LAPLACIAN),
    }
    torch.testing.assert_close(spec.first(WHITE, SHAPE), expected[initial])


@each_attack
def test_the_objective_falls_and_the_budget_is_spent(name: str) -> None:
    spec = parse("attack", f"{name}+iterations=70+{MILD}")
    found = spec.unmix(MIXTURE, COUNT, SHAPE, Journal().part())
    first, _ = spec.objective(WHITE, SHAPE).evaluate(spec.first(WHITE, SHAPE))
    assert (found.objective < first).all()
    assert found.iterations.tolist() == [70, 70]
    assert found.rows.shape == (2, COUNT, 9)


@each_attack
def test_rows_make_what_the_matrices_make_of_the_white_signals(name: str) -> None:
    """Without a step that pays, they are the whitening itself."""
    spec = parse("attack", f"{name}+iterations=1+lr=1e-12")
    found = spec.unmix(MIXTURE, COUNT, SHAPE, Journal().part())
    made = (found.rows @ MIXTURE.weight.double()).float()
    torch.testing.assert_close(made, WHITE.uncentred, atol=1e-4, rtol=1e-4)


@each_attack
def test_with_a_tolerance_a_victim_stops_before_its_budget(name: str) -> None:
    spec = parse("attack", f"{name}+iterations=5000+{MILD}+tolerance=0.01")
    assert (spec.unmix(MIXTURE, COUNT, SHAPE, Journal().part()).iterations < 5000).all()


@each_attack
def test_tuned_weights_are_of_the_published_setting_and_a_weight_of_zero_is_not(name: str) -> None:
    for weight in (*parse("attack", name).weights, "temperature"):
        assert setting("attack", f"{name}+{weight}=0.37") == name
    for weight in parse("attack", name).weights:
        assert setting("attack", f"{name}+{weight}=0") == f"{name}+{weight}=0"
    assert setting("attack", f"{name}+ne=0+mi=0.37") == f"{name}+ne=0"
    spent = f"{name}+iterations=9+lr=0.1+tolerance=0.1+initial=fastica"
    assert setting("attack", spent) == name
    assert setting("attack", f"{name}+counted=spectrum") == f"{name}+counted=spectrum"
