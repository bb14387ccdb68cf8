"""Contract of all attacks, on tiny victims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.core.registry import load, parse
from gleak.observation import Observation
from gleak.runtime.checkpointing import Journal

pytestmark = pytest.mark.usefixtures("random_weights")

Look = Callable[..., Observation]
Run = Callable[..., Path]
Stops = Callable[[Callable[[], Reconstruction]], tuple[Reconstruction, int]]
NAMES = sorted(load("attack"))
BUDGETS = {
    name: [field for field in load("attack")[name].model_fields if field.endswith("iterations")]
    for name in NAMES
}
ITERATING = [name for name in NAMES if BUDGETS[name]]
SEARCHING = [name for name in ITERATING if load("attack")[name]().evaluations]
GUESSING = [*SEARCHING, "blind"]
LEAN = {"rounds": 2, "restarts": 1}
"""Fields whose defaults take long."""
CASES = [
    (name, modality, size)
    for name in NAMES
    for modality in sorted(load("attack")[name].modalities)
    for size in (1, 2)
]
PAIRS = [pytest.param(*case, marks=[pytest.mark.slow] if case[2] == 1 else []) for case in CASES]
STOPPED = {"agic", "cpa", "invertgrad", "spear"}
"""One attack for each way in which progress is kept."""


def short(name: str, iterations: int = 2, lean: bool = True) -> AttackSpec:
    """The attack with a small budget, where it has one."""
    fields = dict.fromkeys(BUDGETS[name], iterations)
    if lean:
        known = load("attack")[name].model_fields
        fields |= {field: value for field, value in LEAN.items() if field in known}
    return parse("attack", "+".join([name, *(f"{key}={value}" for key, value in fields.items())]))


def doubled(seen: Observation) -> Observation:
    """The same in double precision."""
    update, broadcast = (
        {key: value.double() for key, value in values.items()}
        for values in (seen.update, seen.broadcast)
    )
    knowledge = {name: network.double() for name, network in seen.knowledge.items()}
    exact = {"update": update, "broadcast": broadcast, "knowledge": knowledge}
    return replace(seen, model=seen.model.double(), **exact)


@pytest.fixture
def run(simulate: Callable[..., Path], fitting_model: Callable[..., str]) -> Run:
    """Simulate clients of the first model that an attack takes, crafted as it is to be for it.

    Attacks on several epochs have clients that are observed for as many.
    """

    def simulated(spec: AttackSpec, modality: str = "image", **levels: str) -> Path:
        crafted = {"crafting": spec.crafting or "honest", **levels}
        if spec.joins_epochs:
            crafted["client"] = crafted["client"].replace("fedsgd", "epochs")
        model = fitting_model(modality, attack=str(spec), **crafted)
        return simulate(modality, model=model, **crafted)

    return simulated


@pytest.fixture
def folder(run: Run, name: str, modality: str, size: int) -> Path:
    return run(short(name), modality, client=f"fedsgd+batch_size={size}+victims=3")


def told(found: Reconstruction) -> np.ndarray:
    """Victims of whom an attack does not say that it found nothing; Shape (V), a mask."""
    every = np.ones(len(found.labels), dtype=bool)
    return every if found.averaged_count is None else (found.averaged_count > 0).any(1)


def assert_equal(one: Reconstruction, other: Reconstruction) -> None:
    for key, value in vars(one).items():
        assert np.array_equal(value, getattr(other, key)), key


@pytest.mark.parametrize(("name", "modality", "size"), CASES)
def test_reconstructs_every_sample_in_the_unit_range_from_what_is_granted(
    name: str, modality: str, size: int, folder: Path, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file is opened, and of the grants only those the spec names are there."""
    spec = short(name)
    seen = look(folder, spec)
    assert set(seen.granted) == set(spec.grants)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an attack opened a file")

    monkeypatch.setattr("h5py.File", refuse)
    found = spec.reconstruct(seen)
    found.validate()
    count = size if found.averaged_count is None else found.averaged_count.shape[1]
    assert found.inputs.shape == (3, count, *seen.input_shape)
    assert found.inputs.dtype == np.float32
    assert 0 <= found.inputs.min() <= found.inputs.max() <= 1
    assert found.labels.shape == (3, count)
    assert 0 <= found.labels.min() <= found.labels.max() < seen.classes
    assert found.converged.shape == (3,)


@pytest.mark.parametrize(("name", "modality", "size"), PAIRS)
def test_follows_from_what_is_observed_and_leaves_it_as_it_was(
    name: str, modality: str, size: int, folder: Path, look: Look
) -> None:
    spec = short(name)
    seen, untouched = (look(folder, spec) for _ in range(2))
    assert_equal(spec.reconstruct(seen), spec.reconstruct(seen))
    for key, value in untouched.update.items():
        assert torch.equal(seen.update[key], value)
    for key, value in untouched.model.state_dict().items():
        assert torch.equal(seen.model.state_dict()[key], value)


@pytest.mark.parametrize(
    ("name", "modality", "size"), [case for case in PAIRS if case.values[0] in GUESSING]
)
def test_another_seed_is_another_attempt(
    name: str, modality: str, size: int, folder: Path, look: Look
) -> None:
    spec = short(name)
    first, other = (spec.reconstruct(look(folder, spec, seed=seed)) for seed in (5, 6))
    same = np.array_equal(first.inputs, other.inputs) and np.array_equal(first.labels, other.labels)
    assert not same


@pytest.mark.parametrize(("name", "modality", "size"), PAIRS)
def test_a_victim_alone_comes_out_as_among_others(
    name: str, modality: str, size: int, folder: Path, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In double precision: L-BFGS amplifies rounding, a longer search without bound."""
    monkeypatch.setattr(torch, "rand", partial(torch.rand, dtype=torch.double))
    monkeypatch.setattr(torch, "randn", partial(torch.randn, dtype=torch.double))
    spec = short(name, iterations=1)
    together = spec.reconstruct(doubled(look(folder, spec)))
    alone = spec.reconstruct(doubled(look(folder, spec, victims=slice(1, 2))))
    np.testing.assert_allclose(alone.inputs[0], together.inputs[1], atol=1e-6)
    assert np.array_equal(alone.labels[0], together.labels[1])


@pytest.mark.parametrize(
    ("name", "modality", "size"), [case for case in CASES if case[0] in SEARCHING and case[2] == 1]
)
def test_the_objective_falls(name: str, modality: str, size: int, folder: Path, look: Look) -> None:
    spec = short(name, iterations=10, lean=False)
    found = spec.reconstruct(look(folder, spec))
    searched, first = told(found), found.trace_objective[:, 0]
    assert searched.any()
    assert (found.objective < first)[searched].all()
    assert found.objective[searched].mean() < 0.9 * first[searched].mean()
    assert (found.evaluations <= spec.evaluations + 1).all()
    assert found.trace_iteration[-1] == found.iterations.max() or found.converged.any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("defense", ["gaussian+std=10", "signsgd"])
def test_noise_and_bare_signs_are_survived(name: str, defense: str, run: Run, look: Look) -> None:
    spec, client = short(name), "fedsgd+batch_size=2+victims=3"
    folder = run(spec, client=client, defense=defense)
    spec.reconstruct(look(folder, spec)).validate()


@pytest.mark.parametrize("name", NAMES)
def test_an_update_of_zeros_is_survived(name: str, run: Run, look: Look) -> None:
    spec = short(name)
    seen = look(run(spec, client="fedsgd+victims=3"), spec)
    silent = {key: torch.zeros_like(value) for key, value in seen.update.items()}
    spec.reconstruct(replace(seen, update=silent)).validate()


@pytest.mark.parametrize("name", ITERATING)
def test_known_labels_are_a_grant_where_they_can_be_asked_for(name: str) -> None:
    fields, grants = load("attack")[name].model_fields, short(name).grants
    assert "labels" not in grants
    if "labels" in fields:
        assert parse("attack", f"{name}+labels=known").grants == grants | {"labels"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in STOPPED else [pytest.mark.slow]) for name in NAMES],
)
def test_broken_off_at_every_step_it_comes_to_the_same(
    name: str, run: Run, look: Look, tmp_path: Path, stops: Stops
) -> None:
    """The first run is asked to stop at its first occasion, the next at its second, and so on."""
    spec = short(name)
    modality = min(spec.modalities)
    seen = look(run(spec, modality, client="fedsgd+batch_size=2+victims=3"), spec)
    whole, path = spec.reconstruct(seen), tmp_path / "checkpoint.h5"

    def attempt() -> Reconstruction:
        with Journal(path, origin="this") as journal:
            return spec.reconstruct(replace(seen, journal=journal))

    found, broken_off = stops(attempt)
    assert_equal(found, whole)
    assert not path.exists()
    assert broken_off or name not in SEARCHING
