"""No code: every value of a sample is an unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.matching.codes.base import CodeSpec
from gleak.registry import register

if TYPE_CHECKING:
    from gleak.attacks.base import Observation
    from gleak.matching.problem import Problem


@register("pixels")
class Pixels(CodeSpec):
    """Samples as they are, also those of tables."""

    def posed(self, problem: Problem, observation: Observation) -> Problem:
        """See `CodeSpec.posed`."""
        return problem
