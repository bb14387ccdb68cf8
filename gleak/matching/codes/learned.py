"""Codes of an autoencoder that the attacker has trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from gleak.matching.codes.base import CodeSpec

if TYPE_CHECKING:
    from gleak.matching.problem import Problem
    from gleak.observation import Observation


class Learned(CodeSpec):
    """What the attack's codec makes of an image; not named in specs, since the codec is."""

    @override
    def reparametrized(self, problem: Problem, observation: Observation) -> Problem:
        from gleak.matching.coded import Coded

        coder: Any = observation.knowledge["codec"]
        return Coded.of(problem, coder)
