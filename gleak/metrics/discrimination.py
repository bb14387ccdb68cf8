"""Metrics of membership inference: how well evidence tells members from others."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gleak.core.lazy import scipy
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import SHARE, Level, ScoreSpec


@dataclass(frozen=True)
class RankedCandidates:
    """Evidence of V victims' candidates, and the truth; both Shape (V, K)."""

    evidence: np.ndarray
    member: np.ndarray


class MembershipMetricSpec(ScoreSpec):
    """Base of the metrics of membership inference, with one value per victim or per member."""

    level: ClassVar[Level] = "membership"
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    @abstractmethod
    def measure(self, ranked: RankedCandidates) -> list[np.ndarray]:
        """Compute the values of each victim: one, or one for each of its members in their order."""


class VictimMetricSpec(MembershipMetricSpec):
    """Base of those with one value per victim."""

    def measure(self, ranked: RankedCandidates) -> list[np.ndarray]:
        return [
            np.array([self.of_victim(evidence[member], evidence[~member])])
            for evidence, member in zip(ranked.evidence, ranked.member, strict=True)
        ]

    @abstractmethod
    def of_victim(self, members: np.ndarray, others: np.ndarray) -> float:
        """Compute the value from the evidence of members, Shape (M), and of others, Shape (O)."""


@register("auc")
class AUC(VictimMetricSpec):
    """Area under the ROC curve of a victim's candidates.

    It is the probability that a member has more evidence than a candidate that is none; equal
    evidence counts half. Without information it is 0.5.
    """

    source = "Mann and Whitney 1947; Hanley and McNeil 1982"
    limits = SHARE

    def of_victim(self, members: np.ndarray, others: np.ndarray) -> float:
        ranks = scipy.stats.rankdata(np.concatenate([members, others]))[: len(members)]
        least = len(members) * (len(members) + 1) / 2
        return float((ranks.sum() - least) / (len(members) * len(others)))


@register("d_prime")
class DPrime(VictimMetricSpec):
    """Difference between the mean evidence of members and of others, in deviations of the others.

    Of normal evidence of equal variance it is mu of the Gaussian trade-off curve, and the AUC is
    Phi(d' / sqrt(2)). Unlike a value computed from the AUC it is finite for a victim whose members
    are all found, and its mean does not depend on the number of members. Infinite if all others
    have one evidence and members another.
    """

    source = "Green and Swets 1966"

    def of_victim(self, members: np.ndarray, others: np.ndarray) -> float:
        difference = float(members.mean() - others.mean())
        deviation = float(others.std(ddof=1)) if len(others) > 1 else 0.0
        if deviation == 0:
            return math.copysign(math.inf, difference) if difference else 0.0
        return difference / deviation


@register("p_value")
class PValue(VictimMetricSpec):
    """Probability of at least this AUC if a victim's members were drawn at random.

    By the one-sided test of Mann and Whitney, exact for at most eight members or others without
    equal evidence, normal with a correction for ties otherwise.
    """

    source = "Mann and Whitney 1947"
    better = "lower"
    limits = SHARE

    def of_victim(self, members: np.ndarray, others: np.ndarray) -> float:
        return float(scipy.stats.mannwhitneyu(members, others, alternative="greater").pvalue)


@register("tpr")
class TruePositiveRate(MembershipMetricSpec):
    """1 if a member has more evidence than all but a share of the candidates that are none, else 0.

    The mean is the true positive rate at a false positive rate of at most ``fpr``. One threshold is
    used for all victims: of their n candidates that are no members, at most fpr n are above it; if
    that is less than one, none is. The rates are conditional on membership, so that they do not
    depend on how many candidates are members.
    """

    source = "Carlini et al. 2022, section III-A"
    per = "sample"
    binary = True
    limits = SHARE

    fpr: float = parameter(0.01, "largest false positive rate", gt=0, lt=1)

    def measure(self, ranked: RankedCandidates) -> list[np.ndarray]:
        others = np.sort(ranked.evidence[~ranked.member])[::-1]
        threshold = others[int(self.fpr * len(others) + ROUNDING)]
        return [
            (evidence[member] > threshold).astype(float)
            for evidence, member in zip(ranked.evidence, ranked.member, strict=True)
        ]


ROUNDING = 1e-9
"""Added to a number of candidates before it is cut off."""
