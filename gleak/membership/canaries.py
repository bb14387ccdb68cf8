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

from gleak.artifacts.audit_trials import AuditTrials
from gleak.artifacts.dataset import Dataset
from gleak.attacks.attacker import AttackerSpec
from gleak.clients.base import ClientSpec
from gleak.clients.fedavg import CapturedUpdates
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.spec import changed, parameter
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


class CanarySpec(AttackerSpec):
    """Base class of audits of a defence by canaries.

    Whether a canary takes part is the toss of a fair coin of its own. A client's update of several
    rounds is one trial, whose score is the sum over the rounds. Scores are logarithms of likelihood
    ratios under Gaussian noise, up to a positive factor and a constant.
    """

    kind: ClassVar[str] = "audit"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"trials"})
    reads_all_rounds: ClassVar[bool] = True
    uses_gpu: ClassVar[bool] = False
    takes_samples: ClassVar[bool] = False
    """True if canaries are samples of the dataset, in batches of the network's clients."""

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
        return "gaussian" if defense.guarantees_epsilon else "rates"

    def check_defense(self, client: ClientSpec, defense: DefenseSpec) -> None:
        """Check that clients under a defence can be audited, as far as their specs tell.

        Raises:
            IncompatibleError: the clients are real ones, or the canaries do not suit them.
            SpecError: the noise has no epsilon at this delta.
        """
        if isinstance(client, CapturedUpdates):
            raise IncompatibleError(
                f"audit {self} runs clients many times, and {client} sent one update each; audit "
                "simulated clients under the same defence"
            )
        check_level(self.delta, self.confidence, self.method_for(defense))

    def audit(self, subject: Subject, seed: int) -> EpsilonAudit:
        """Run all trials and compute the lower bound on epsilon.

        Raises:
            IncompatibleError: the subject cannot be audited.
            SpecError: the noise has no epsilon at this delta.
        """
        subject.defense.check(subject.client)
        self.check_defense(subject.client, subject.defense)
        return self.bound(self.run(subject, seed), subject.defense)

    def bound(self, trials: AuditTrials, defense: DefenseSpec) -> EpsilonAudit:
        """Compute the lower bound on epsilon of finished trials."""
        present, absent = trials.score[trials.present], trials.score[~trials.present]
        method = self.method_for(defense)
        return audit_scores(present, absent, self.delta, self.confidence, method)

    def run(self, subject: Subject, seed: int) -> AuditTrials:
        """Run all trials, with random numbers that no simulated victim of the seed draws."""
        return self.test(subject, derived_seed(seed, "canaries"))

    @abstractmethod
    def test(self, subject: Subject, seed: int) -> AuditTrials:
        """Run all trials, and test for each canary whether it took part."""


@dataclass(frozen=True)
class Sent:
    """Updates of V runs, as the server receives them.

    Args:
        updates: vectors in double precision, one for each round, Shape (V, R, M).
        noise_multipliers: of the local steps of the first run, Shape (S); None for defences of
            updates.
        positions: of the samples that each round's steps take, Shape (V, R, B); None: all.
    """

    updates: np.ndarray
    noise_multipliers: np.ndarray | None
    positions: np.ndarray | None

    def uses(self, units: int, size: int) -> np.ndarray:
        """Return which rounds use any sample of each unit, Shape (V, R, U).

        Units are so many samples in a row (``size``), in the order of a client's samples.
        """
        used = np.full((*self.updates.shape[:2], units), self.positions is None)
        if self.positions is not None:
            np.put_along_axis(used, self.positions // size, True, axis=2)
        return used


def sent_updates(
    client: ClientSpec,
    defense: DefenseSpec,
    network: torch.nn.Module,
    inputs: np.ndarray,
    labels: np.ndarray,
    seed: int,
) -> Sent:
    """Return what the server receives of clients with these samples.

    Shapes: inputs (V, N, *shape), labels (V, N).
    """
    from gleak.simulation.victims import Simulation

    several = changed(client, {"victims": len(inputs), "repeats": 1})
    observed = Simulation(several, defense, network, inputs, labels, seed).run()
    rows = [value.decode() for value in observed.update.values()]
    flat = [value.reshape(*value.shape[:2], -1) for value in rows]
    recorded = observed.noise_multipliers
    return Sent(
        np.concatenate(flat, axis=2).astype(np.float64),
        None if recorded is None else recorded[0],
        observed.positions,
    )
