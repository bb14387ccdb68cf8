"""Contract of all attacks, on tiny victims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gleak.attacks.base import AttackSpec
from gleak.core.registry import load, parse
from gleak.testing.attack_contract import (
    SIZES,
    AttackCase,
    check_defended,
    check_interrupted,
    check_known_labels,
    check_objective,
    check_repeatable,
    check_result,
    check_seed,
    check_single_victim,
    check_zeros,
    is_search,
    shortened,
)
from gleak.testing.network_forms import check_attack_on_forms
from gleak.testing.tiny_cells import TinyCells

pytestmark = pytest.mark.usefixtures("random_weights")

NAMES = sorted(load("attack"))
SEARCHING = [name for name in NAMES if is_search(parse("attack", name))]
GUESSING = [*SEARCHING, "blind", "random_noise"]
CASES = [
    (name, modality, size)
    for name in NAMES
    for modality in sorted(load("attack")[name].modalities)
    for size in SIZES
]
PAIRS = [pytest.param(*case, marks=[pytest.mark.slow] if case[2] == 1 else []) for case in CASES]
STOPPED = {"agic", "cpa", "invertgrad", "spear"}
"""One attack for each way in which progress is kept."""


@pytest.fixture
def case(cells: TinyCells, modality: str, size: int) -> AttackCase:
    return AttackCase(cells, modality, size)


@pytest.fixture
def pair(cells: TinyCells, name: str) -> AttackCase:
    """Victims of two samples, of the first modality that an attack takes."""
    return AttackCase(cells, min(load("attack")[name].modalities), 2)


@pytest.mark.parametrize("check", [check_result, check_repeatable, check_single_victim])
@pytest.mark.parametrize(("name", "modality", "size"), PAIRS)
def test_the_contract_of_attacks_is_kept(
    name: str, case: AttackCase, check: Callable[[AttackCase, AttackSpec], None]
) -> None:
    """Of the grants only those the spec names are there; victims come out as alone."""
    check(case, parse("attack", name))


@pytest.mark.parametrize(
    ("name", "modality", "size"), [case for case in PAIRS if case.values[0] in GUESSING]
)
def test_another_seed_is_another_attempt(name: str, case: AttackCase) -> None:
    check_seed(case, parse("attack", name))


@pytest.mark.parametrize(
    ("name", "modality", "size"), [case for case in CASES if case[0] in SEARCHING and case[2] == 1]
)
def test_the_objective_falls(name: str, case: AttackCase) -> None:
    check_objective(case, parse("attack", name))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_noise_and_bare_signs_are_survived(name: str, pair: AttackCase) -> None:
    check_defended(pair, parse("attack", name))


@pytest.mark.parametrize("name", NAMES)
def test_an_update_of_zeros_is_survived(name: str, pair: AttackCase) -> None:
    check_zeros(replace(pair, size=1), parse("attack", name))


@pytest.mark.parametrize("name", NAMES)
def test_known_labels_are_a_grant_where_they_can_be_asked_for(name: str) -> None:
    check_known_labels(parse("attack", name))


@pytest.mark.parametrize("name", NAMES)
def test_networks_of_unusual_forms_work_or_are_refused_before_work(
    name: str, cells: TinyCells
) -> None:
    check_attack_on_forms(shortened(parse("attack", name)), cells)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in STOPPED else [pytest.mark.slow]) for name in NAMES],
)
def test_broken_off_at_every_step_it_comes_to_the_same(name: str, pair: AttackCase) -> None:
    """The first run is asked to stop at its first occasion, the next at its second, and so on."""
    check_interrupted(pair, parse("attack", name))
