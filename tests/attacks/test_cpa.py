"""All attacks by the objective of the cocktail party attack, and the attack itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.attacks.cpa import CocktailParty
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.independent_components import LAPLACIAN, fixed_point
from gleak.attacks.unmixing.mixtures import Mixture, White, whiten
from gleak.core.registry import load, parse
from gleak.runtime.checkpointing import Journal
from gleak.studies.axis_labels import setting

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


Make = Callable[..., tuple[Observation, Private]]
PSNR = Callable[[np.ndarray, np.ndarray], np.ndarray]
TUNED = "cpa+iterations=300+lr=0.01+tv=10+mi=0.1"
BLIND = parse("attack", "blind")
IMAGE_SHAPE = (1, 3, 4)


@pytest.mark.parametrize(
    "client", ["fedsgd+batch_size=4+victims=2", "fedsgd+batch_size=8+victims=2"]
)
def test_photographs_come_out_better_than_blindly(
    client: str, make_photo_case: Make, psnr: PSNR
) -> None:
    spec = parse("attack", TUNED)
    seen, truth = make_photo_case(spec, client)
    found = spec.reconstruct(seen)
    blind = BLIND.reconstruct(make_photo_case(BLIND, client)[0])
    reached = psnr(truth.inputs, found.inputs).mean(1)
    assert (reached > psnr(truth.inputs, blind.inputs).mean(1) + 4).all()
    assert (found.iterations == 300).all()


def test_the_total_variation_is_what_tells_photographs_apart(
    make_photo_case: Make, psnr: PSNR
) -> None:
    """CPA Table IV: without it quality falls far."""
    with_it, without = parse("attack", TUNED), parse("attack", f"{TUNED}".replace("tv=10", "tv=0"))
    seen, truth = make_photo_case(with_it)
    better, worse = (
        psnr(truth.inputs, spec.reconstruct(seen).inputs).mean() for spec in (with_it, without)
    )
    assert better > worse + 3


def test_total_variation_is_of_images_alone() -> None:
    white = White(torch.zeros(1, 2, 12), torch.zeros(1, 2, 1), torch.zeros(1, 2, 2))
    spec = parse("attack", "cpa")
    assert set(spec.priors(white, IMAGE_SHAPE)) == {"tv"}
    assert set(spec.priors(white, (12,))) == set()


def test_tables_are_unmixed_by_the_other_terms(make_case: Make) -> None:
    spec = parse("attack", "cpa+iterations=20")
    seen, truth = make_case(spec, "tabular", client="fedsgd+batch_size=3+victims=2")
    found = spec.reconstruct(seen)
    found.validate()
    assert found.inputs.shape == truth.inputs.shape
