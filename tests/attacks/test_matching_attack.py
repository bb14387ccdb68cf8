"""Components of the gradient matching attacks."""

from __future__ import annotations

import inspect
import re

import pytest

from gleak.attacks.matching_attack import MatchingAttack
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from gleak.data.base import DatasetSpec
from gleak.data.bundled import Digits

OTHERS = (parse("model", "lenet"), parse("client", "fedsgd"))
ATTACKS = load("attack")
MATCHING = sorted(name for name, cls in ATTACKS.items() if issubclass(cls, MatchingAttack))


@pytest.mark.parametrize("name", MATCHING)
def test_the_budget_reaches_the_engine(name: str) -> None:
    spec = parse("attack", f"{name}+iterations=7")
    parts = spec.parts()
    assert parts.iterations == 7
    afterwards = getattr(spec, "generator_iterations", 0)
    assert spec.cost().evaluations == 7 * parts.optimizer.evaluations_per_iteration + afterwards


CHANGES = """
    iterations=9 threshold=0.125 restarts=1 patience=2 start=uniform start=normal labels=known
    distance=signs code=normalised finish=stretched optimizer=adam alpha=0.5 lr=0.75 tv=0.25
    box=false client_model=unrolled client_model=one_step compared=all draws=searched
    skip=classifier beta=3 weights=exponential relu_modifier=false descent=plain batch_norm=0.5
    statistics=granted
"""
"""Values of fields that are components of a search; one of each is not the default."""


@pytest.mark.parametrize("name", MATCHING)
def test_components_of_the_search_are_fields(name: str) -> None:
    standard, differs = parse("attack", name).parts(), {}
    for change in CHANGES.split():
        field = change.partition("=")[0]
        if field in ATTACKS[name].model_fields:
            changed = parse("attack", f"{name}+{change}").parts() != standard
            differs[field] = differs.get(field, False) or changed
    assert all(differs.values()), differs


@pytest.mark.parametrize("name", ATTACKS)
def test_every_field_is_read(name: str) -> None:
    """A field that does nothing would lie in a path; networks may be there for scores alone."""
    classes = (base for base in ATTACKS[name].__mro__ if base.__module__.startswith("gleak"))
    code = "".join(map(inspect.getsource, {inspect.getmodule(base) for base in classes}))
    networks = {spec.name for spec in [*load("knowledge").values()]}
    for field in set(ATTACKS[name].model_fields) - networks:
        assert re.search(rf"self\.{field}\b|\"{field}\"", code), field


class DigitsToTestWith(Digits):
    """Digits of which none is for training."""

    @property
    def sizes(self) -> dict[str, int]:
        return {"train": 0, "test": 1797}


@pytest.mark.parametrize(
    ("start", "dataset", "fault"),
    [
        ("red", parse("dataset", "digits"), "digits holds images of 1 channel"),
        ("green", parse("dataset", "mnist"), "mnist holds images of 1 channel"),
        ("blue", parse("dataset", "breast_cancer"), "breast_cancer holds a table"),
        ("optimal", DigitsToTestWith(size=8), "digits+size=8 has no training samples"),
    ],
    ids=str,
)
def test_a_start_that_does_not_fit_is_named_with_its_attack(
    start: str, dataset: DatasetSpec, fault: str
) -> None:
    attack = parse("attack", f"cpl+start={start}")
    with pytest.raises(IncompatibleError) as caught:
        attack.check(dataset, *OTHERS)
    assert str(caught.value).startswith(f"attack cpl+start={start}: start {start} ")
    assert fault in str(caught.value)


@pytest.mark.parametrize("start", sorted(load("start")))
def test_every_start_serves_colour_images_with_training_samples(start: str) -> None:
    attack = parse("attack", f"cpl+start={start}")
    attack.check(parse("dataset", "photos"), *OTHERS)
    assert attack.grants == ({"class_sample"} if start == "optimal" else set())
