"""Reconstruction of samples from the updates of several epochs (AGIC section IV-B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.matching.engine import match, solve
from gleak.matching.gradient_matching import GradientMatching
from gleak.matching.gradients import repeated_steps
from gleak.matching.problem import Evaluation, Problem

if TYPE_CHECKING:
    from gleak.matching.parts import Parts
    from gleak.observation import Observation

POOL = 2


@dataclass(frozen=True)
class Images:
    """What was made of the updates of one epoch, each alone.

    Args:
        images: Shape (V, N, C, H, W), one update's after the other's; of one victim, without V.
        labels: Shape (V, N).
        evaluations: Shape (V).
    """

    images: np.ndarray
    labels: np.ndarray
    evaluations: np.ndarray

    def of_victim(self, row: int) -> Images:
        """The same of one victim alone."""
        return Images(self.images[row], self.labels[row], self.evaluations[row])


@dataclass(frozen=True)
class Sought(Images):
    """Samples of one victim, each found in several updates.

    Args:
        rounds: Shape (N, E), which ones.
    """

    rounds: np.ndarray


@dataclass(frozen=True)
class EpochSettings:
    """How updates of several epochs are paired and weighted.

    Args:
        parts: of the search for the samples of one update.
        matching_iterations: budget of an update before updates are paired.
        gamma: weight of the updates after the first epoch.
        pooled: pair images by means of 2 x 2 pixels.
        label_filter: pair updates first that share an inferred label.
    """

    parts: Parts
    matching_iterations: int
    gamma: float
    pooled: bool
    label_filter: bool


class EpochMatching:
    """The search in all updates of some victims.

    Args:
        observation: of several rounds.
        settings: how updates are paired and weighted.
    """

    def __init__(self, observation: Observation, settings: EpochSettings) -> None:
        self.observation, self.settings, self.parts = observation, settings, settings.parts
        self.epochs = observation.epochs
        self.updates_of_epoch = observation.rounds // self.epochs

    def alone(self, epoch: int) -> Reconstruction:
        """Every update of one epoch inverted by itself."""
        found = self._invert(epoch, self.parts)
        return Reconstruction(
            inputs=found.images,
            labels=found.labels,
            converged=np.ones(len(found.images), dtype=bool),
            evaluations=found.evaluations,
        )

    def jointly(self) -> Reconstruction:
        """Every sample sought in one update of each epoch."""
        if self.updates_of_epoch == 1:
            every = torch.arange(self.observation.batch_size)
            rounds = range(self.epochs)
            return self._seek(self.observation, rounds, [every] * self.epochs)
        early = replace(self.parts, iterations=self.settings.matching_iterations)
        epochs = [self._invert(epoch, early) for epoch in range(self.epochs)]
        found = [self._of_victim(row, epochs) for row in range(self.observation.victims)]
        spent = np.sum([epoch.evaluations for epoch in epochs], axis=0)
        return Reconstruction(
            inputs=np.stack([victim.images for victim in found]),
            labels=np.stack([victim.labels for victim in found]),
            converged=np.ones(len(found), dtype=bool),
            evaluations=spent + np.stack([victim.evaluations for victim in found]),
            rounds=np.stack([victim.rounds for victim in found]),
        )

    def _invert(self, epoch: int, parts: Parts) -> Images:
        """The updates of an epoch, each alone."""
        first = epoch * self.updates_of_epoch
        numbers = range(first, first + self.updates_of_epoch)
        found = [match(self.observation.of_round(number), parts) for number in numbers]
        return Images(
            images=np.concatenate([one.inputs for one in found], 1),
            labels=np.concatenate([one.labels for one in found], 1),
            evaluations=_evaluations(found),
        )

    def _of_victim(self, row: int, epochs: Sequence[Images]) -> Sought:
        """All samples of one victim, each from a search of its own."""
        observation, size = self.observation.of_victim(row), self.observation.batch_size
        slots = self._slots([epoch.of_victim(row) for epoch in epochs])
        starts = self.updates_of_epoch * np.arange(self.epochs)
        rounds = starts + slots // size
        found = [
            self._seek(observation, numbers, _places(own, size))
            for numbers, own in zip(rounds.tolist(), (slots % size).tolist(), strict=True)
        ]
        return Sought(
            images=np.concatenate([one.inputs[0, :1] for one in found]),
            labels=np.concatenate([one.labels[0, :1] for one in found]),
            evaluations=_evaluations(found)[0],
            rounds=rounds,
        )

    def _slots(self, epochs: Sequence[Images]) -> np.ndarray:
        """Where each sample of the first epoch stands in every one; Shape (N, E)."""
        slots = [np.arange(len(epochs[0].labels))]
        for earlier, later in pairwise(epochs):
            slots.append(self._partners(earlier, later)[slots[-1]])
        return np.stack(slots, 1)

    def _partners(self, earlier: Images, later: Images) -> np.ndarray:
        """For each image of an epoch the one of the next that is paired with it; Shape (N)."""
        images = torch.from_numpy(earlier.images), torch.from_numpy(later.images)
        costs = distances(*images, pooled=self.settings.pooled)
        if not self.settings.label_filter:
            return pair_greedily(costs, torch.ones_like(costs, dtype=torch.bool))
        return pair_greedily(costs, share_a_label(self._lists(earlier), self._lists(later)))

    def _lists(self, epoch: Images) -> Tensor:
        """Labels behind the update that each image is of; Shape (N, B)."""
        size = self.observation.batch_size
        return torch.from_numpy(epoch.labels).unflatten(0, (-1, size)).repeat_interleave(size, 0)

    def _seek(
        self, observation: Observation, rounds: Sequence[int], places: Sequence[Tensor]
    ) -> Reconstruction:
        """Samples sought in one update of each epoch at once."""
        weights = [1.0] + [self.settings.gamma] * (self.epochs - 1)
        updates = [
            Part(observation.of_round(number), place, weight)
            for number, place, weight in zip(rounds, places, weights, strict=True)
        ]
        problem = JointMatching.of(updates, self.parts)
        steps = repeated_steps(observation, self.parts.client_model) * self.epochs
        return solve(problem, updates[0].observation, steps)


def _places(slots: Sequence[int], size: int) -> list[Tensor]:
    """Which sample of a search each one of a batch is: the shared one, 0, or one of its own.

    Args:
        slots: of the shared one in each batch.
        size: of a batch.

    Returns:
        For each batch, Shape (size).
    """
    places, first = [], 1
    for slot in slots:
        own = torch.arange(first, first + size - 1)
        places.append(torch.cat([own[:slot], torch.zeros(1, dtype=torch.long), own[slot:]]))
        first += size - 1
    return places


def _evaluations(found: Sequence[Reconstruction]) -> np.ndarray:
    """Of all searches together; Shape (V)."""
    return np.sum([one.evaluations for one in found if one.evaluations is not None], axis=0)


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


def distances(first: Tensor, second: Tensor, pooled: bool) -> Tensor:
    """Mean squared error of every image of one epoch with every one of the next.

    Args:
        first: Shape (N, C, H, W).
        second: Shape (M, C, H, W).
        pooled: compare means of 2 x 2 pixels, which have less noise.

    Returns:
        Shape (N, M).
    """
    if pooled:
        first, second = functional.avg_pool2d(first, POOL), functional.avg_pool2d(second, POOL)
    return torch.cdist(first.flatten(1), second.flatten(1)).square() / first[0].numel()


def share_a_label(first: Tensor, second: Tensor) -> Tensor:
    """Which updates of two epochs may hold the same sample by their labels.

    Args:
        first: Shape (N, B), labels behind the update that each image is of.
        second: Shape (M, B).

    Returns:
        Shape (N, M).
    """
    return (first[:, None, :, None] == second[None, :, None, :]).flatten(2).any(2)


def pair_greedily(costs: Tensor, allowed: Tensor) -> np.ndarray:
    """One-to-one pairs, the cheapest first; those that are not allowed after all that are.

    Args:
        costs: Shape (N, N).
        allowed: Shape (N, N).

    Returns:
        Shape (N), the partner of each row.
    """
    order = np.lexsort((costs.flatten().numpy(), ~allowed.flatten().numpy()))
    partner = np.full(len(costs), -1)
    taken = np.zeros(len(costs), dtype=bool)
    for row, column in zip(*np.unravel_index(order, costs.shape), strict=True):
        if partner[row] < 0 and not taken[column]:
            partner[row], taken[column] = column, True
    return partner
