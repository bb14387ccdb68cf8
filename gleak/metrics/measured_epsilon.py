"""Metrics of audits by canaries: epsilon as measured, beside what is proven of the same clients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np

from gleak.artifacts.audit_trials import AuditTrials
from gleak.clients.base import ClientSpec
from gleak.core.registry import parse, register
from gleak.defenses.base import DefenseSpec
from gleak.membership.canaries import CanarySpec
from gleak.membership.epsilon_audit import EpsilonAudit
from gleak.metrics.base import Level, MetricUnavailable, ScoreSpec
from gleak.metrics.epsilon import EpsilonPrv, EpsilonRdp, compose_multipliers


@dataclass(frozen=True)
class FinishedAudit:
    """Trials of an audit, and the specs of its cell."""

    trials: AuditTrials
    audit: CanarySpec
    client: ClientSpec
    defense: DefenseSpec

    @classmethod
    def of(cls, trials: AuditTrials, levels: Mapping[str, str]) -> Self:
        return cls(
            trials,
            parse("audit", levels["attack"]),
            parse("client", levels["client"]),
            parse("defense", levels["defense"]),
        )

    @cached_property
    def bound(self) -> EpsilonAudit:
        return self.audit.bound(self.trials, self.defense)


class AuditMetricSpec(ScoreSpec):
    """Base of the metrics of audits, with one value per audit."""

    level: ClassVar[Level] = "audit"
    better: ClassVar[Literal["higher", "lower"]] = "lower"

    @abstractmethod
    def measure(self, audited: FinishedAudit) -> float:
        """Compute the value.

        Raises:
            MetricUnavailable: not defined for these clients.
        """


@register("epsilon_measured")
class EpsilonMeasured(AuditMetricSpec):
    """Lower bound on epsilon at the audit's delta, which holds with the audit's confidence.

    If it exceeds `epsilon_accounted`, the accountant or the implementation is refuted, but for one
    audit in 1 / (1 - confidence).
    """

    source = "Nasr et al. 2021 and 2023; Steinke et al. 2023 (see the audit's method)"

    def measure(self, audited: FinishedAudit) -> float:
        return audited.bound.epsilon


@register("epsilon_measurable")
class EpsilonMeasurable(AuditMetricSpec):
    """Lower bound on epsilon that as many trials would give if canaries were never mistaken.

    An `epsilon_measured` close to it says that more trials would show more.
    """

    source = "ours"

    def measure(self, audited: FinishedAudit) -> float:
        return audited.bound.ceiling


@register("epsilon_accounted")
class EpsilonAccounted(AuditMetricSpec):
    """Upper bound on epsilon of the audited clients: `epsilon_prv` at the audit's delta.

    It is that of all their rounds and steps; `epsilon_rdp` where noise is too weak for the former.
    Unavailable for defences that guarantee nothing, also for noise whose strength depends on the
    data, and at a delta of 0.
    """

    source = "Gopi et al. 2021; Mironov 2017; opacus"

    def measure(self, audited: FinishedAudit) -> float:
        noise, delta = accounted_noise(audited), audited.audit.delta
        if delta == 0:
            raise MetricUnavailable("delta = 0, at which Gaussian noise has no epsilon")
        try:
            return EpsilonPrv(delta=delta).guarantee(noise)
        except MetricUnavailable:
            return EpsilonRdp(delta=delta).guarantee(noise)


@register("mu_accounted")
class MuAccounted(AuditMetricSpec):
    """Upper bound on mu of Gaussian differential privacy of the audited clients.

    One over the noise of all their rounds and steps together, in units of the sensitivity. No test
    has fewer errors than the Gaussian trade-off curve of this mu. Unavailable where
    `epsilon_accounted` is.
    """

    source = "Dong et al. 2022, Definition 2.6 and Corollary 3.3"

    def measure(self, audited: FinishedAudit) -> float:
        return 1 / accounted_noise(audited)


def accounted_noise(audited: FinishedAudit) -> float:
    """Return the noise of one step that is as private as all rounds and steps of a client.

    In units of the sensitivity.

    Raises:
        MetricUnavailable: nothing is guaranteed.
    """
    client, defense = audited.client, audited.defense
    if defense.data_dependent_noise:
        raise MetricUnavailable(f"defense {defense}: noise that depends on the data")
    recorded, mechanism = audited.trials.noise_multipliers, defense.mechanism
    times = client.rounds if recorded is None else client.uses_per_sample
    if recorded is None and mechanism is not None:
        recorded = np.full(times, mechanism.deviation / (2 * mechanism.norm))
    if recorded is None:
        raise MetricUnavailable(f"defense {defense} guarantees no epsilon")
    (multiplier,) = compose_multipliers(recorded[None], times)
    if multiplier == 0:
        raise MetricUnavailable(f"defense {defense}: epsilon is infinite")
    return float(multiplier)
