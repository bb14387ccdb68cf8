"""What holds for every attack, on tiny victims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec, Observation
from gleak.attacks.run import observe
from gleak.errors import FitError
from gleak.registry import load, parse

Simulate = Callable[..., Path]
NAMES = sorted(load("attack"))
BUDGETS = {
    name: [field for field in load("attack")[name].model_fields if field.endswith("iterations")]
    for name in NAMES
}
ITERATING = [name for name in NAMES if BUDGETS[name]]
SEARCHING = [name for name in ITERATING if load("attack")[name]().evaluations]
GUESSING = [*SEARCHING, "blind"]
MODELS = ("lenet+width=4", "mlp+hidden=16", "mlp+hidden=16+activation=relu")
DATASETS = {"image": "photos", "tabular": "breast_cancer"}
CASES = [
    (name, modality, size)
    for name in NAMES
    for modality in sorted(load("attack")[name].modalities)
    for size in (1, 2)
]


def short(name: str, iterations: int = 2) -> AttackSpec:
    """The attack with a small budget, where it has one."""
    return parse("attack", "+".join([name, *(f"{each}={iterations}" for each in BUDGETS[name])]))


def model_for(spec: AttackSpec, modality: str = "image", client: str = "fedsgd") -> str:
    """The first model that the attack takes."""
    dataset = parse("dataset", DATASETS[modality])
    for text in MODELS:
        model = parse("model", text)
        try:
            model.check(modality, dataset.shape)
            spec.check(dataset, model, parse("client", client))
        except FitError:
            continue
        return text
    raise AssertionError(f"{spec} takes none of {MODELS}")


def observation(
    folder: Path, spec: AttackSpec, victims: slice = slice(None), seed: int = 5
) -> Observation:
    return observe(
        folder / "update.h5",
        folder / "model.h5",
        {grant: folder / "granted" / f"{grant}.h5" for grant in spec.grants},
        victims=victims,
        seed=seed,
        device="cpu",
    )


def doubled(seen: Observation) -> Observation:
    """The same in double precision."""
    update = {key: value.double() for key, value in seen.update.items()}
    return replace(seen, update=update, model=seen.model.double())


@pytest.fixture
def folder(simulate: Simulate, name: str, modality: str, size: int) -> Path:
    client = f"fedsgd+batch_size={size}+victims=3"
    return simulate(modality, model=model_for(short(name), modality, client), client=client)


def assert_equal(one: Reconstruction, other: Reconstruction) -> None:
    for key, value in vars(one).items():
        assert np.array_equal(value, getattr(other, key)), key


@pytest.mark.parametrize(("name", "modality", "size"), CASES)
def test_reconstructs_every_sample_in_the_unit_range(
    name: str, modality: str, size: int, folder: Path
) -> None:
    seen = observation(folder, short(name))
    found = short(name).reconstruct(seen)
    found.validate()
    assert found.inputs.shape == (3, size, *seen.input_shape)
    assert found.inputs.dtype == np.float32
    assert 0 <= found.inputs.min() <= found.inputs.max() <= 1
    assert found.labels.shape == (3, size)
    assert 0 <= found.labels.min() <= found.labels.max() < seen.classes
    assert found.converged.shape == (3,)


@pytest.mark.parametrize(("name", "modality", "size"), CASES)
def test_follows_from_what_is_observed_and_leaves_it_as_it_was(
    name: str, modality: str, size: int, folder: Path
) -> None:
    spec = short(name)
    seen, untouched = (observation(folder, spec) for _ in range(2))
    assert_equal(spec.reconstruct(seen), spec.reconstruct(seen))
    for key, value in untouched.update.items():
        assert torch.equal(seen.update[key], value)
    for key, value in untouched.model.state_dict().items():
        assert torch.equal(seen.model.state_dict()[key], value)


@pytest.mark.parametrize(
    ("name", "modality", "size"), [case for case in CASES if case[0] in GUESSING]
)
def test_another_seed_is_another_attempt(name: str, modality: str, size: int, folder: Path) -> None:
    spec = short(name)
    first, other = (spec.reconstruct(observation(folder, spec, seed=seed)) for seed in (5, 6))
    same = np.array_equal(first.inputs, other.inputs) and np.array_equal(first.labels, other.labels)
    assert not same


@pytest.mark.parametrize(("name", "modality", "size"), CASES)
def test_a_victim_alone_comes_out_as_among_others(
    name: str, modality: str, size: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In double precision: L-BFGS amplifies rounding, a longer search without bound."""
    monkeypatch.setattr(torch, "rand", partial(torch.rand, dtype=torch.double))
    monkeypatch.setattr(torch, "randn", partial(torch.randn, dtype=torch.double))
    spec = short(name, iterations=1)
    together = spec.reconstruct(doubled(observation(folder, spec)))
    alone = spec.reconstruct(doubled(observation(folder, spec, victims=slice(1, 2))))
    np.testing.assert_allclose(alone.inputs[0], together.inputs[1], atol=1e-6)
    assert np.array_equal(alone.labels[0], together.labels[1])


@pytest.mark.parametrize(("name", "modality", "size"), CASES)
def test_only_what_is_granted_is_used(
    name: str, modality: str, size: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file is opened, and of the grants only those the spec names are there."""
    spec = short(name)
    seen = observation(folder, spec)
    assert set(seen.granted) == set(spec.grants)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an attack opened a file")

    monkeypatch.setattr("h5py.File", refuse)
    spec.reconstruct(seen)


@pytest.mark.parametrize(
    ("name", "modality", "size"), [case for case in CASES if case[0] in SEARCHING and case[2] == 1]
)
def test_the_objective_falls(name: str, modality: str, size: int, folder: Path) -> None:
    spec = short(name, iterations=10)
    found = spec.reconstruct(observation(folder, spec))
    assert (found.objective < found.trace_objective[:, 0]).all()
    assert found.objective.mean() < 0.9 * found.trace_objective[:, 0].mean()
    assert (found.evaluations <= spec.evaluations + 1).all()
    assert found.trace_iteration[-1] == found.iterations.max() or found.converged.any()


@pytest.mark.parametrize("name", NAMES)
def test_noise_on_the_update_is_survived(name: str, simulate: Simulate) -> None:
    client = "fedsgd+batch_size=2+victims=3"
    model = model_for(short(name), client=client)
    folder = simulate(model=model, client=client, defense="gaussian+std=10")
    found = short(name).reconstruct(observation(folder, short(name)))
    found.validate()


@pytest.mark.parametrize("name", NAMES)
def test_an_update_of_zeros_is_survived(name: str, simulate: Simulate) -> None:
    spec = short(name)
    seen = observation(simulate(model=model_for(spec)), spec)
    silent = {key: torch.zeros_like(value) for key, value in seen.update.items()}
    spec.reconstruct(replace(seen, update=silent)).validate()


@pytest.mark.parametrize("name", ITERATING)
def test_known_labels_are_a_grant_where_they_can_be_asked_for(name: str) -> None:
    fields, grants = load("attack")[name].model_fields, short(name).grants
    assert "labels" not in grants
    if "labels" in fields:
        assert parse("attack", f"{name}+labels=known").grants == grants | {"labels"}
