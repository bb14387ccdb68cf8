"""Base of audits by canaries: clients run a defence with and without them, and a test tells which.

The test knows everything but the noise and whether a canary took part, as differential privacy
assumes of an attacker: an epsilon above the accountant's then refutes the accountant, or the
implementation, and not an assumption about what attackers know.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.clients.base import ClientSpec
from gleak.core.lazy import torch
from gleak.core.spec import Spec, parameter
from gleak.defenses.base import DefenseSpec
from gleak.membership.epsilon_audit import EpsilonAudit, Method, audit_scores, check_level
from gleak.runtime.seeding import derived_seed

RUNS = 256
"""Clients, or groups of clients, that are simulated at once."""


@dataclass(frozen=True)
class Subject:
    """Clients whose privacy is audited.

    Args:
        client: how they train.
        defense: what they do to their updates.
        dataset: whose samples they have; None for canaries that are no samples.
        network: with the broadcast parameters, in evaluation mode; None likewise.
    """

    client: ClientSpec
    defense: DefenseSpec
    dataset: Dataset | None = None
    network: torch.nn.Module | None = None


@dataclass(frozen=True)
class CanaryScores:
    """Scores of the test, one for each canary.

    Args:
        scores: the larger, the more the test believes that the canary took part; Shape (T).
        present: whether it did; Shape (T).
    """

    scores: np.ndarray
    present: np.ndarray


class CanarySpec(Spec):
    """Base class of audits of a defence by canaries.

    Whether a canary takes part is the toss of a fair coin of its own. A client's update of several
    rounds is one trial, whose score is the sum over the rounds. Scores are logarithms of likelihood
    ratios under Gaussian noise, up to a positive factor and a constant.
    """

    kind: ClassVar[str] = "audit"

    trials: int = parameter(1000, "canaries, of which half take part", ge=100)
    delta: float = parameter(1e-5, "delta of (epsilon, delta)-privacy", ge=0, lt=1)
    confidence: float = parameter(
        0.95, "probability with which the lower bound on epsilon holds", gt=0, lt=1
    )
    method: Method | None = parameter(
        None,
        "bound: by rates, the Gaussian trade-off curve, or for one run; none: gaussian where "
        "Gaussian noise guarantees an epsilon, else rates",
    )

    def method_for(self, defense: DefenseSpec) -> Method:
        """Return the bound for a defence; see `gleak.membership.epsilon_audit.audit_scores`."""
        if self.method is not None:
            return self.method
        guaranteed = defense.mechanism is not None or defense.local_gradient() is not None
        return "gaussian" if guaranteed else "rates"

    def check(self, client: ClientSpec, defense: DefenseSpec) -> None:
        """Raise if clients under a defence cannot be audited, as far as their specs tell.

        Raises:
            IncompatibleError: the defence does not support the client, or the canaries neither.
            SpecError: the noise has no epsilon at this delta.
        """
        defense.check(client)
        check_level(self.delta, self.confidence, self.method_for(defense))

    def audit(self, subject: Subject, seed: int) -> EpsilonAudit:
        """Run all trials and compute the lower bound on epsilon.

        Raises:
            IncompatibleError: the subject cannot be audited.
            SpecError: the noise has no epsilon at this delta.
        """
        self.check(subject.client, subject.defense)
        found = self.test(subject, derived_seed(seed, "canaries"))
        present, absent = found.scores[found.present], found.scores[~found.present]
        method = self.method_for(subject.defense)
        return audit_scores(present, absent, self.delta, self.confidence, method)

    @abstractmethod
    def test(self, subject: Subject, seed: int) -> CanaryScores:
        """Run all trials, and test for each canary whether it took part."""


def sent_updates(
    client: ClientSpec,
    defense: DefenseSpec,
    network: torch.nn.Module,
    inputs: np.ndarray,
    labels: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Return what the server receives of clients, as vectors in double precision.

    Shapes: inputs (V, N, *shape), labels (V, N), result (V, R, M) for R rounds.
    """
    from gleak.simulation.victims import Simulation

    update = Simulation(client, defense, network, inputs, labels, seed).run().update
    rows = [value.decode() for value in update.values()]
    flat = [value.reshape(*value.shape[:2], -1) for value in rows]
    return np.concatenate(flat, axis=2).astype(np.float64)
