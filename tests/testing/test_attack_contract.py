"""`check_attack` accepts attacks that obey the contract, and names what another does not obey."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
import torch

from gleak.artifacts.reconstruction import Candidate, Reconstruction
from gleak.attacks.attacker import SearchCost
from gleak.attacks.base import AttackSpec
from gleak.attacks.blind import Blind
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.spec import parameter
from gleak.testing import check_attack
from gleak.testing.attack_contract import SIZES, AttackCase, check_repeatable, check_result
from gleak.testing.tiny_cells import TinyCells


class Grey(AttackSpec):
    """Every sample of one shade."""

    name: ClassVar[str] = "grey_samples"

    def shades(self, observation: Observation) -> np.ndarray:
        """One shade for each victim."""
        return np.full(observation.victims, 0.5)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        shape = (observation.victims, observation.batch_size)
        ones = np.ones((*shape, *observation.input_shape), np.float32)
        shades = self.shades(observation).astype(np.float32)
        return Reconstruction(
            inputs=(ones.T * shades).T,
            labels=np.zeros(shape, int),
            converged=np.ones(observation.victims, bool),
        )


def norms(observation: Observation) -> torch.Tensor:
    return sum(value.flatten(1).norm(dim=1) for value in observation.update.values())


def too_bright(observation: Observation) -> np.ndarray:
    return np.full(observation.victims, 1.5)


def unseeded(observation: Observation) -> np.ndarray:
    return np.random.default_rng().random(observation.victims)


def changing_the_update(observation: Observation) -> np.ndarray:
    for value in observation.update.values():
        value.zero_()
    return np.full(observation.victims, 0.5)


def reading_another_file(observation: Observation) -> np.ndarray:
    with h5py.File("private.h5"):
        return np.full(observation.victims, 0.5)


def mixing_victims(observation: Observation) -> np.ndarray:
    return (norms(observation) / (1 + norms(observation).sum())).numpy()


def dividing_by_the_norm(observation: Observation) -> np.ndarray:
    return (norms(observation) / norms(observation)).numpy()


def single_precision(observation: Observation) -> np.ndarray:
    if observation.batch_size > max(SIZES):
        observation.model(torch.zeros(1, *observation.input_shape))
    return np.full(observation.victims, 0.5)


class Stepless(Grey):
    """A search that cannot be stopped."""

    iterations: int = parameter(100, "budget")

    def cost(self) -> SearchCost:
        return SearchCost(evaluations=100)

    def shades(self, observation: Observation) -> np.ndarray:
        seeds = [(observation.seed, victim) for victim in observation.victim_ids]
        return np.array([np.random.default_rng(seed).random() for seed in seeds])


class Ensemble(Grey):
    """An attack that lists candidates, of which the first is its result."""

    honest: bool = parameter(True, "this candidate is the one that is chosen")

    def reconstruct(self, observation: Observation) -> Reconstruction:
        grey = super().reconstruct(observation)
        listed = [
            [
                Candidate(
                    attack="cpl", reason="grey", inputs=own, labels=labels, chosen=self.honest
                ),
                Candidate(attack="aono", reason="not suitable", chosen=not self.honest),
            ]
            for own, labels in zip(grey.inputs, grey.labels, strict=True)
        ]
        return grey.with_candidates(listed)


class Silent(Stepless):
    """A search that records nothing."""

    def shades(self, observation: Observation) -> np.ndarray:
        part = observation.journal.part()
        with part.stepping():
            part.step(lambda: {"nothing": np.zeros(1)})
        return super().shades(observation)


class Stubborn(Silent):
    """A search without random numbers."""

    def shades(self, observation: Observation) -> np.ndarray:
        return 0 * super().shades(observation)


def test_an_attack_that_obeys_passes(register: Any) -> None:
    check_attack(register(Grey))


def test_the_candidates_of_an_ensemble_are_compared_with_its_result(
    register: Any, tmp_path: Path
) -> None:
    case, ensemble = AttackCase(TinyCells(tmp_path)), register(Ensemble)
    for check in (check_result, check_repeatable):
        check(case, ensemble())
    with pytest.raises(AssertionError, match="the result is not the chosen candidate"):
        check_result(case, ensemble(honest=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["invertgrad", "mkor", "agic_epochs", "melis"])
def test_registered_attacks_pass(name: str) -> None:
    check_attack(name)


@pytest.mark.parametrize(
    ("shades", "text"),
    [
        (too_bright, "inputs from 1.5 to 1.5, expected 0 to 1"),
        (unseeded, "run twice: inputs differ"),
        (changing_the_update, "changed .* of the observation"),
        pytest.param(reading_another_file, "opened a file", marks=pytest.mark.slow),
        (mixing_victims, "a victim alone differs"),
        (single_precision, "on a network with double precision: RuntimeError"),
        pytest.param(
            dividing_by_the_norm,
            r"update of zeros: /inputs contains \d+ values that are NaN",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_not_obeyed_is_named(
    shades: Any, text: str, register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Grey, "shades", staticmethod(shades))
    with pytest.raises(AssertionError, match=text):
        check_attack(register(Grey))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Stepless, "a search without steps to stop at"),
        (Stubborn, "gives the same result for another seed"),
        (Silent, "iterates, but does not record trace_objective"),
    ],
)
def test_what_a_search_does_not_obey_is_named(cls: Any, text: str, register: Any) -> None:
    with pytest.raises(AssertionError, match=text):
        check_attack(register(cls))


def test_a_class_that_is_not_registered_is_told_how() -> None:
    class Mine(Blind):
        """Not registered."""

    with pytest.raises(SpecError, match="Mine is not registered; decorate it: @register"):
        check_attack(Mine)
    with pytest.raises(SpecError, match="unknown attack 'grey_samples'"):
        check_attack(Grey)


def test_an_attack_that_no_model_fits_says_why(register: Any) -> None:
    class Choosy(Grey):
        """Takes nothing."""

        def check(self, *_: Any) -> None:
            raise IncompatibleError("takes nothing")

    with pytest.raises(IncompatibleError, match=r"no model of the tests fits: .*takes nothing"):
        check_attack(register(Choosy))
