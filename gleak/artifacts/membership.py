"""Candidates of membership inference, who of them took part, and the evidence that was found."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

import numpy as np

from gleak.artifacts.schema import array, attribute
from gleak.artifacts.store import Artifact
from gleak.core.errors import ArtifactError

FEWEST = 20
"""Least number of candidates of a victim."""
PLACES = 4
"""Digits of a value by which samples are told apart: 8 bits have values 0.004 apart."""


@dataclass(frozen=True, kw_only=True)
class CandidateSamples(Artifact):
    """Labelled samples of which an attacker asks whether they are in an update, and others.

    Victims share a pool of samples, of which each has its own candidates.

    Args:
        inputs: the pool, Shape (M, C, H, W) or (M, F), values in [0, 1].
        labels: Shape (M), class indices.
        candidate: Shape (V, K), positions in the pool of each victim's candidates, in random order.
        reference_inputs: samples of the same distribution that no victim has, Shape (L, *shape).
        reference_labels: Shape (L), class indices.
        modality: "image" or "tabular".
    """

    format: ClassVar[str] = "gleak/candidates"

    modality: str = attribute("image")
    inputs: np.ndarray = array("pooled feature...", "intensity in [0, 1]")
    labels: np.ndarray = array("pooled", "class index", "int")
    candidate: np.ndarray = array("victim candidate", "position in the pool", "int")
    reference_inputs: np.ndarray = array("reference feature...", "intensity in [0, 1]")
    reference_labels: np.ndarray = array("reference", "class index", "int")

    def validate(self, where: str | None = None) -> None:
        """Check the arrays, and that no victim has a candidate twice or too few of them.

        Raises:
            ArtifactError: names the victim and the fault.
        """
        where = where or self.format
        super().validate(where)
        count = self.candidate.shape[1]
        if count < FEWEST:
            raise ArtifactError(
                f"{where}: {count} candidates; give at least {FEWEST}, as rates among fewer mean "
                "little"
            )
        low, high = int(self.candidate.min()), int(self.candidate.max())
        if low < 0 or high >= len(self.inputs):
            raise ArtifactError(
                f"{where}: /candidate has positions {low} to {high} in a pool of {len(self.inputs)}"
            )
        digests = digests_of(self.inputs)
        for victim, positions in enumerate(self.candidate):
            seen: dict[bytes, int] = {}
            for place, position in enumerate(positions):
                first = seen.setdefault(digests[position], place)
                if first != place:
                    raise ArtifactError(
                        f"{where}: candidates {first} and {place} of victim {victim} are the same "
                        "sample; leave one out, as a member among the others counts against the "
                        "attack"
                    )


@dataclass(frozen=True, kw_only=True)
class Members(Artifact):
    """Membership of the candidates in the update; read by scoring and never by an attack.

    Args:
        member: Shape (V, K), True where a candidate's sample was used for the victim's update.
    """

    format: ClassVar[str] = "gleak/members"

    member: np.ndarray = array("victim candidate", "yes or no", "bool")


@dataclass(frozen=True, kw_only=True)
class Membership(Artifact):
    """Evidence of each candidate's membership in an update.

    Args:
        evidence: Shape (V, K), larger for candidates that are more probably members; values of one
            attack only are comparable.
    """

    format: ClassVar[str] = "gleak/membership"

    evidence: np.ndarray = array("victim candidate", "of the attack")


def digests_of(samples: np.ndarray) -> list[bytes]:
    """Return a digest of each sample's values to four places; equal samples have equal ones.

    Intensities of 8 bits that two programs scaled to [0, 1] differ by rounding, and remain equal.
    """
    places = np.rint(np.asarray(samples, dtype=np.float64) * 10**PLACES).astype(np.int64)
    return [blake2b(one.tobytes(), digest_size=16).digest() for one in places]
