"""Several updates matched at once, of batches that have samples in common (AGIC Eq. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor
from typing_extensions import override

from gleak.matching.gradient_matching import GradientMatching
from gleak.matching.problem import Evaluation, Problem

if TYPE_CHECKING:
    from gleak.matching.parts import Parts
    from gleak.observation import Observation


@dataclass(frozen=True)
class Part:
    """One of the updates.

    Args:
        observation: of one round, with its own broadcast parameters.
        places: for each sample of its batch, which of the samples sought it is; Shape (B).
        weight: how much its distance counts, gamma in Eq. 5.
    """

    observation: Observation
    places: Tensor
    weight: float


@dataclass(frozen=True)
class JointMatching(Problem):
    """The weighted sum of the objectives of several updates.

    A sample that is in several batches is one unknown; the others of each batch are unknowns of
    their own, which the update needs and nothing else tells of.

    Args:
        problems: of each update alone.
        places: see `Part`.
        weights: see `Part`.
    """

    problems: tuple[GradientMatching, ...]
    places: tuple[Tensor, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, updates: Sequence[Part], parts: Parts) -> Self:
        """The problem that some updates of the same victims pose; labels are fixed ones.

        Args:
            updates: one or more; together their places are all from 0 on.
            parts: of the attack.
        """
        problems = tuple(GradientMatching.of(part.observation, parts) for part in updates)
        places = tuple(part.places.to(problems[0].device) for part in updates)
        count = 1 + max(int(place.max()) for place in places)
        return cls(
            parts=parts,
            observed=problems[0].observed,
            targets=_targets(problems, places, count),
            shape=(count, *problems[0].shape[1:]),
            classes=problems[0].classes,
            problems=problems,
            places=places,
            weights=tuple(part.weight for part in updates),
        )

    @override
    def keep(self, rows: Tensor | slice) -> Self:
        problems = tuple(problem.keep(rows) for problem in self.problems)
        return replace(super().keep(rows), problems=problems)

    @override
    def evaluate(self, points: Tensor) -> Evaluation:
        nothing = points.new_zeros(len(points))
        whole = Evaluation(nothing, nothing, torch.zeros_like(points))
        inputs = self.inputs(points)
        for problem, places, weight in zip(self.problems, self.places, self.weights, strict=True):
            own = problem.evaluate(inputs[:, places].flatten(1))
            along = torch.zeros_like(inputs)
            along.index_add_(1, places, problem.inputs(own.gradient))
            whole = whole.plus(replace(own, gradient=along.flatten(1)), weight)
        return whole


def _targets(problems: Sequence[GradientMatching], places: Sequence[Tensor], count: int) -> Tensor:
    """Label of each sample sought, as the first of its updates has it; Shape (V, N, classes)."""
    told = problems[0].targets
    assert told is not None
    targets = told.new_zeros(len(told), count, told.shape[2])
    for problem, place in zip(reversed(problems), reversed(places), strict=True):
        assert problem.targets is not None
        targets[:, place] = problem.targets
    return targets
