"""No code: every value of a sample is an unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.registry import register
from gleak.matching.codes.base import CodeSpec

if TYPE_CHECKING:
    from gleak.matching.problem import Problem
    from gleak.observation import Observation


@register("pixels")
class Pixels(CodeSpec):
    """Samples as they are, also those of tables."""

    @override
    def reparametrized(self, problem: Problem, observation: Observation) -> Problem:
        return problem
