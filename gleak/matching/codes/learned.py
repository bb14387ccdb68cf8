"""Codes of an autoencoder that the attacker has trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gleak.matching.codes.base import CodeSpec

if TYPE_CHECKING:
    from gleak.attacks.base import Observation
    from gleak.matching.problem import Problem


class Learned(CodeSpec):
    """What the attack's codec makes of an image; not named in specs, since the codec is."""

    def posed(self, problem: Problem, observation: Observation) -> Problem:
        """See `CodeSpec.posed`."""
        from gleak.matching.coded import Coded

        coder: Any = observation.knowledge["codec"]
        return Coded.of(problem, coder)
