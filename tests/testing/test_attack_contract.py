"""`check_attack` accepts attacks that obey the contract, and names what another does not obey."""

from __future__ import annotations

from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
import torch

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec, SearchCost
from gleak.attacks.blind import Blind
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.spec import parameter
from gleak.testing import check_attack
from gleak.testing.attack_contract import SIZES


class Grey(AttackSpec):
    """Every sample mid-grey."""

    name: ClassVar[str] = "grey_samples"

    def values(self, observation: Observation) -> np.ndarray:
        """One shade for each victim."""
        return np.full(observation.victims, 0.5)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        shades, samples = self.values(observation), observation.batch_size
        shape = (len(shades), samples, *observation.input_shape)
        return Reconstruction(
            inputs=np.broadcast_to(shades.reshape(-1, *[1] * (len(shape) - 1)), shape).astype(
                np.float32
            ),
            labels=np.zeros((len(shades), samples), int),
            converged=np.ones(len(shades), bool),
        )


def norms(observation: Observation) -> torch.Tensor:
    return sum(value.flatten(1).norm(dim=1) for value in observation.update.values())


class Bright(Grey):
    """Values above one."""

    def values(self, observation: Observation) -> np.ndarray:
        return 3 * super().values(observation)


class Unseeded(Grey):
    """Numbers from elsewhere."""

    def values(self, observation: Observation) -> np.ndarray:
        return np.random.default_rng().random(observation.victims)


class Changing(Grey):
    """The update is overwritten."""

    def values(self, observation: Observation) -> np.ndarray:
        for value in observation.update.values():
            value.zero_()
        return super().values(observation)


class Reading(Grey):
    """Another file is read."""

    def values(self, observation: Observation) -> np.ndarray:
        with h5py.File("private.h5"):
            return super().values(observation)


class Mixing(Grey):
    """Victims have a part in each other's results."""

    def values(self, observation: Observation) -> np.ndarray:
        shares = norms(observation) / (1 + norms(observation).sum())
        return shares.numpy()


class Dividing(Grey):
    """An update of zeros gives no number."""

    def values(self, observation: Observation) -> np.ndarray:
        sizes = norms(observation)
        return (sizes / sizes).numpy()


class Single(Grey):
    """The network is taken to compute in single precision."""

    def values(self, observation: Observation) -> np.ndarray:
        if observation.batch_size > max(SIZES):
            observation.model(torch.zeros(1, *observation.input_shape))
        return super().values(observation)


class Stepless(Grey):
    """A search that cannot be stopped."""

    iterations: int = parameter(100, "budget")

    def cost(self) -> SearchCost:
        return SearchCost(evaluations=100)

    def values(self, observation: Observation) -> np.ndarray:
        seeds = [(observation.seed, victim) for victim in observation.victim_ids]
        return np.array([np.random.default_rng(seed).random() for seed in seeds])


class Silent(Stepless):
    """A search that records nothing."""

    def values(self, observation: Observation) -> np.ndarray:
        part = observation.journal.part()
        with part.stepping():
            part.step(lambda: {"nothing": np.zeros(1)})
        return super().values(observation)


class Stubborn(Silent):
    """A search without random numbers."""

    def values(self, observation: Observation) -> np.ndarray:
        return 0 * super().values(observation)


def test_an_attack_that_obeys_passes(register: Any) -> None:
    check_attack(register(Grey))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["invertgrad", "mkor", "agic_epochs", "melis"])
def test_registered_attacks_pass(name: str) -> None:
    check_attack(name)


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Bright, "inputs from 1.5 to 1.5, expected 0 to 1"),
        (Unseeded, "run twice: inputs differ"),
        (Changing, "changed .* of the observation"),
        pytest.param(Reading, "opened a file", marks=pytest.mark.slow),
        (Mixing, "a victim alone differs"),
        (Single, "on a network with double precision: RuntimeError"),
        pytest.param(
            Dividing,
            r"update of zeros: /inputs contains \d+ values that are NaN",
            marks=pytest.mark.slow,
        ),
        pytest.param(Stepless, "a search without steps to stop at", marks=pytest.mark.slow),
        pytest.param(Stubborn, "gives the same result for another seed", marks=pytest.mark.slow),
        pytest.param(
            Silent, "iterates, but does not record trace_objective", marks=pytest.mark.slow
        ),
    ],
)
def test_what_is_not_obeyed_is_named(cls: type[AttackSpec], text: str, register: Any) -> None:
    with pytest.raises(AssertionError, match=text):
        check_attack(register(cls))


def test_a_class_that_is_not_registered_is_told_how() -> None:
    class Mine(Blind):
        """Not registered."""

    for cls in (Grey, Mine):
        with pytest.raises(SpecError, match=rf"{cls.__name__} is not registered|unknown attack"):
            check_attack(cls)


def test_an_attack_that_no_model_fits_says_why(register: Any) -> None:
    class Choosy(Grey):
        """Takes nothing."""

        def check(self, *_: Any) -> None:
            raise IncompatibleError("takes nothing")

    with pytest.raises(IncompatibleError, match=r"no model of the tests fits: .*takes nothing"):
        check_attack(register(Choosy))
