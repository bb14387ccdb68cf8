"""Contract of all attacks, checked on tiny victims.

from gleak.testing import check_attack
from my_attacks import MyAttack

def test_my_attack():
    check_attack(MyAttack)
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from unittest.mock import patch

import numpy as np
import torch
from tqdm import tqdm

from gleak.api.given_specs import as_spec
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.attacks.observation import Observation
from gleak.core.errors import ArtifactError, IncompatibleError, StoppedError
from gleak.core.spec import changed
from gleak.runtime.checkpointing import Journal
from gleak.testing.network_forms import check_attack_on_forms
from gleak.testing.tiny_cells import TinyCells, check_registered, fitting_model

T = TypeVar("T")
VICTIMS = 3
UNLIKE = 4
"""Victims whose updates differ in kind."""
SIZES = (1, 2)


def check_attack(attack: str | AttackSpec | type[AttackSpec]) -> None:
    """Check that an attack obeys the contract of all attacks.

    On tiny victims, images and rows of tables as its ``modalities`` say, with batches of one and of
    two samples: results are complete and in range; they follow from the observation, which is not
    changed, and from the seed; a victim's result does not depend on the others; the objective of a
    search falls; noise, bare signs and zeros do not break it; labels can be granted if it has a
    field for them; and if it is interrupted at any step it resumes with the same result. Networks
    of unusual forms (layers in another order, unused, frozen or recurrent first ones, scalar
    parameters, double precision, features without a graph) work or are refused before work. Fields
    whose names end in ``iterations`` are set to a few. It takes minutes; a terminal shows the
    progress (with pytest, add ``-s``).

    Args:
        attack: a registered class, its spec or the spec's text.

    Raises:
        SpecError: the class is not registered.
        IncompatibleError: no model of these tests fits the attack.
        AssertionError: names what the attack does not obey.
    """
    spec: AttackSpec = as_spec("attack", attack)
    check_registered(spec)
    with TemporaryDirectory() as folder:
        cells, cases, refusals = TinyCells(Path(folder)), [], []
        for modality, size in product(sorted(spec.modalities), SIZES):
            case = AttackCase(cells, modality, size)
            try:
                case.simulate(spec)
            except IncompatibleError as error:
                refusals.append(error)
            else:
                cases.append(case)
        if not cases:
            raise refusals[0]
        wanted = [*CHECKS, *(CHECKS_OF_SEARCHES if is_search(spec) else ())]
        checks: list[Callable[[], None]]
        checks = [partial(check, case, spec) for case in cases for check in wanted]
        checks += [partial(check_known_labels, spec)]
        checks += [partial(check_attack_on_forms, shortened(spec), cells)]
        for check in tqdm(checks, f"check_attack {spec}", unit="check", disable=None):
            check()


@dataclass(frozen=True)
class AttackCase:
    """Tiny victims of attacks, of a number of samples each."""

    cells: TinyCells
    modality: str = "image"
    size: int = 1

    def simulate(self, spec: AttackSpec, defense: str = "none") -> Path:
        """Simulate clients of the first model that the attack supports, crafted as it requires.

        Raises:
            IncompatibleError: no model of these tests fits.
        """
        protocol = "epochs" if spec.joins_epochs else "fedsgd"
        size = f"+batch_size={self.size}" if self.size > 1 else ""
        levels = {
            "crafting": spec.crafting or "honest",
            "client": f"{protocol}{size}+victims={VICTIMS}",
            "defense": defense,
        }
        model = fitting_model(self.modality, attack=str(spec), **levels)
        return self.cells.simulate(self.modality, model=model, **levels)

    def observe(
        self, spec: AttackSpec, seed: int = 5, defense: str = "none", victims: slice = slice(None)
    ) -> Observation:
        """Return what the attack is given of the victims."""
        return self.cells.observe(self.simulate(spec, defense), spec, seed, victims=victims)


def shortened(spec: AttackSpec, iterations: int = 2, lean: bool = True) -> AttackSpec:
    """Return an attack with a small budget; lean: also of other fields that take long."""
    known = type(spec).model_fields
    fields = {name: iterations for name in known if name.endswith("iterations")}
    if lean:
        small = {"rounds": 2, "restarts": 1, "budget": 2}
        fields |= {name: value for name, value in small.items() if name in known}
    short: AttackSpec = changed(spec, fields)
    return short


def is_search(spec: AttackSpec) -> bool:
    """Return True if an attack evaluates an objective again and again."""
    return any(name.endswith("iterations") for name in type(spec).model_fields) and bool(
        spec.cost().evaluations
    )


def check_result(case: AttackCase, spec: AttackSpec) -> None:
    """Check type, shape and range of a result, which is found without opening a file."""
    spec = shortened(spec)
    seen = case.observe(spec)
    assert set(seen.granted) == set(spec.grants), f"{spec}: other grants than the spec names"
    with patch("h5py.File", side_effect=AssertionError(f"{spec} opened a file")):
        found = spec.reconstruct(seen)
    _check_valid(found, f"result of {spec}")
    counts = found.averaged_count
    count = case.size if counts is None else counts.shape[1]
    _check_array("inputs", found.inputs, (VICTIMS, count, *seen.input_shape), 1.0, spec)
    _check_array("labels", found.labels, (VICTIMS, count), seen.classes - 1, spec)
    assert found.inputs.dtype == np.float32, f"{spec}: inputs are {found.inputs.dtype}"
    assert found.converged.shape == (VICTIMS,), f"{spec}: converged has {found.converged.shape}"
    for victim, inputs in enumerate(found.inputs):
        listed = found.candidates(victim)
        same = [
            each.inputs is not None and np.array_equal(each.inputs, inputs)
            for each in listed
            if each.chosen
        ]
        assert same == [True] or not listed, f"{spec}: the result is not the chosen candidate"


def _check_valid(found: Reconstruction, where: str) -> None:
    """Check the arrays of a result: types, shapes, and that values are finite."""
    try:
        found.validate(where)
    except ArtifactError as error:
        raise AssertionError(str(error)) from error


def _check_array(
    name: str, value: np.ndarray, shape: tuple[int, ...], most: float, spec: AttackSpec
) -> None:
    assert value.shape == shape, f"{spec}: {name} have shape {value.shape}, expected {shape}"
    assert 0 <= value.min() <= value.max() <= most, (
        f"{spec}: {name} from {value.min()} to {value.max()}, expected 0 to {most}"
    )


def check_repeatable(case: AttackCase, spec: AttackSpec) -> None:
    """Check that equal observations give equal results, and are not changed."""
    spec = shortened(spec)
    seen, untouched = (case.observe(spec) for _ in range(2))
    _check_same(spec.reconstruct(seen), spec.reconstruct(seen), f"{spec}: run twice")
    for part in (lambda one: one.update, lambda one: one.model.state_dict()):
        values = part(seen)
        for key, value in part(untouched).items():
            assert torch.equal(values[key], value), f"{spec} changed {key} of the observation"


def _check_same(one: Reconstruction, other: Reconstruction, when: str) -> None:
    for key, value in vars(one).items():
        np.testing.assert_equal(getattr(other, key), value, f"{when}: {key} differ")


def check_seed(case: AttackCase, spec: AttackSpec) -> None:
    """Check that the random numbers of an attack depend on the seed."""
    spec = shortened(spec)
    first, other = (spec.reconstruct(case.observe(spec, seed)) for seed in (5, 6))
    same = np.array_equal(first.inputs, other.inputs) and np.array_equal(first.labels, other.labels)
    assert not same, f"{spec} gives the same result for another seed"


def check_single_victim(case: AttackCase, spec: AttackSpec) -> None:
    """Check that a victim's result does not depend on the others attacked with it.

    It computes in double precision, since L-BFGS amplifies rounding errors without bound.
    """
    spec = shortened(spec, iterations=1)
    seen = _unlike_each_other(_doubled(case.observe(spec)))
    uniform, normal = (partial(draw, dtype=torch.double) for draw in (torch.rand, torch.randn))
    for every in (seen, _sent_in_part(seen)):
        with patch.object(torch, "rand", uniform), patch.object(torch, "randn", normal):
            together = spec.reconstruct(every)
            for rows, which in ((slice(1), "a victim alone"), (slice(1, None), "a shard")):
                part = spec.reconstruct(every.of_victims(rows))
                error = np.abs(part.inputs - together.inputs[rows]).max()
                others = "from the same among others"
                assert error <= 1e-6, f"{spec}: {which} differs by {error:g} {others}"
                for name in ("labels", "converged"):
                    same = np.array_equal(getattr(part, name), getattr(together, name)[rows])
                    assert same, f"{spec}: {which} differs in {name} {others}"


def _unlike_each_other(seen: Observation) -> Observation:
    """Return victims whose updates differ in kind.

    That of the first is as it was sent, that of the second is noisy if it is of a batch, every
    other column of the third's is zero, and so is all of the fourth's.
    """
    victims = seen.of_victims(np.arange(UNLIKE) % VICTIMS)
    stream = torch.Generator().manual_seed(0)
    update = {}
    for name, value in victims.update.items():
        update[name] = unlike = value.clone()
        noise = torch.randn(value[1].shape, generator=stream).to(value)
        unlike[1] += (seen.batch_size > 1) * value[1].square().mean().sqrt() * noise
        unlike[2, ..., ::2] = 0
        unlike[3] = 0
    return replace(victims, update=update, victim_ids=np.arange(UNLIKE))


def _sent_in_part(seen: Observation) -> Observation:
    """Return the same victims, of whose updates the first two sent few values, the others most."""
    stream = torch.Generator().manual_seed(1)
    shares = torch.tensor([0.1, 0.1, 0.9, 0.9])
    sent = {
        name: torch.rand(value.shape, generator=stream) < shares.view(-1, *[1] * (value.ndim - 1))
        for name, value in seen.update.items()
    }
    update = {name: sent[name] * value for name, value in seen.update.items()}
    return replace(seen, sent=sent, update=update)


def _doubled(seen: Observation) -> Observation:
    """Return an observation in double precision."""

    def double(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            key: value.double() if value.is_floating_point() else value
            for key, value in values.items()
        }

    return replace(
        seen,
        update=double(seen.update),
        broadcast=double(seen.broadcast),
        granted=double(seen.granted),
        knowledge={name: network.double() for name, network in seen.knowledge.items()},
        model=seen.model.double(),
    )


def check_objective(case: AttackCase, spec: AttackSpec) -> None:
    """Check that the objective of a search falls, and that its cost is within the budget."""
    spec = shortened(spec, iterations=10, lean=False)
    found = spec.reconstruct(case.observe(spec))
    for name in ("trace_objective", "trace_iteration", "objective", "evaluations", "iterations"):
        assert getattr(found, name) is not None, f"{spec} iterates, but does not record {name}"
    assert found.trace_objective is not None and found.objective is not None
    assert found.trace_iteration is not None and found.iterations is not None
    counts = found.averaged_count
    searched = np.ones(VICTIMS, dtype=bool) if counts is None else (counts > 0).any(1)
    assert searched.any(), f"{spec} found no sample of any victim"
    before, after = found.trace_objective[searched, 0], found.objective[searched]
    assert (after < before).all(), f"{spec}: the objective rises from {before} to {after}"
    assert after.mean() < 0.95 * before.mean(), f"{spec}: the objective hardly falls"
    evaluations, most = np.asarray(found.evaluations), spec.cost().evaluations + 1
    assert (evaluations <= most).all(), f"{spec}: too many"
    ended = found.trace_iteration[-1] == found.iterations.max() or found.converged.any()
    assert ended, f"{spec}: the trace ends before the search"


def check_defended(case: AttackCase, spec: AttackSpec) -> None:
    """Check that strong noise, and signs without magnitudes, do not break an attack."""
    spec = shortened(spec)
    for defense in ("gaussian+std=10", "signsgd"):
        found = spec.reconstruct(case.observe(spec, defense=defense))
        _check_valid(found, f"result of {spec} under {defense}")


def check_zeros(case: AttackCase, spec: AttackSpec) -> None:
    """Check that an update of zeros does not break an attack."""
    spec = shortened(spec)
    seen = case.observe(spec)
    silent = {key: torch.zeros_like(value) for key, value in seen.update.items()}
    found = spec.reconstruct(replace(seen, update=silent))
    _check_valid(found, f"result of {spec} for an update of zeros")


def check_known_labels(spec: AttackSpec) -> None:
    """Check that ``labels=known``, if an attack has it, is a grant."""
    fields = type(spec).model_fields
    if "labels" not in fields or not is_search(spec):
        return
    default = changed(spec, {"labels": fields["labels"].default})
    granted = changed(spec, {"labels": "known"}).grants
    assert "labels" not in default.grants, f"{default} is granted labels by default"
    assert granted == default.grants | {"labels"}, f"{spec}: labels=known grants {granted}"


def run_interrupted(job: Callable[[], T]) -> tuple[T, int]:
    """Run a job until it ends, asking it to stop at a later step in every attempt.

    The job does its work inside a `Journal`, and is called again after each stop.

    Returns:
        Its result, and the number of times that it was stopped.
    """
    for stopped in count():
        left = [stopped]

        def due(journal: Journal, left: list[int] = left) -> bool:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGTERM)
            left[0] -= 1
            return bool(journal._asked)

        with patch.object(Journal, "due", property(due)), suppress(StoppedError):
            return job(), stopped
    raise AssertionError("unreachable")


def check_interrupted(case: AttackCase, spec: AttackSpec) -> None:
    """Check that an attack stopped at any step resumes with the same result."""
    spec = shortened(spec)
    seen = case.observe(spec)
    whole = spec.reconstruct(seen)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.h5"

        def attempt() -> Reconstruction:
            with Journal(path, origin="this") as journal:
                return spec.reconstruct(replace(seen, journal=journal))

        found, stopped = run_interrupted(attempt)
        _check_same(found, whole, f"{spec}: interrupted")
        assert not path.exists(), f"{spec}: the checkpoint remains"
    assert stopped or not is_search(spec), f"{spec}: a search without steps to stop at"


CHECKS: tuple[Callable[[AttackCase, AttackSpec], None], ...] = (
    check_result,
    check_repeatable,
    check_zeros,
    check_single_victim,
    check_defended,
    check_interrupted,
)
CHECKS_OF_SEARCHES = (check_seed, check_objective)
