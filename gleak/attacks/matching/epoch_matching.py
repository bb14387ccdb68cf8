"""Reconstruction of samples from the updates of several epochs (AGIC section IV-B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching.engine import match, solve
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.gradients import repeated_steps
from gleak.attacks.matching.optimizers import Evaluation
from gleak.attacks.matching.parts import Parts
from gleak.attacks.matching.problem import Problem
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch


@dataclass(frozen=True)
class EpochMatching:
    """Search over all updates of some victims.

    Args:
        observation: of several rounds.
        parts: components of the search for the samples of one update.
        matching_iterations: budget per update before updates are paired.
        gamma: weight of the updates after the first epoch.
        pooled: pair images by means of 2 x 2 pixels.
        label_filter: pair updates first that share an inferred label.
    """

    observation: Observation
    parts: Parts
    matching_iterations: int
    gamma: float
    pooled: bool
    label_filter: bool

    @property
    def epochs(self) -> int:
        return self.observation.protocol.epochs

    @property
    def updates_of_epoch(self) -> int:
        return self.observation.rounds // self.epochs

    def alone(self, epoch: int, parts: Parts | None = None) -> Reconstruction:
        """Reconstruct every update of one epoch separately; their samples follow each other."""
        first = epoch * self.updates_of_epoch
        numbers = range(first, first + self.updates_of_epoch)
        results = [self.invert_round(number, parts or self.parts) for number in numbers]
        return Reconstruction(
            inputs=np.concatenate([one.inputs for one in results], 1),
            labels=np.concatenate([one.labels for one in results], 1),
            evaluations=_evaluations(results),
            converged=np.all([one.converged for one in results], axis=0),
        )

    def jointly(self) -> Reconstruction:
        """Reconstruct every sample from one update of each epoch."""
        if self.updates_of_epoch == 1:
            every = torch.arange(self.observation.batch_size)
            rounds = range(self.epochs)
            return self._search(self.observation, rounds, [every] * self.epochs)
        early = replace(self.parts, iterations=self.matching_iterations)
        epochs = [self.alone(epoch, early) for epoch in range(self.epochs)]
        victims = [self._of_victim(row, epochs) for row in range(self.observation.victims)]
        fields = {name: np.stack([victim[name] for victim in victims]) for name in victims[0]}
        spent = _evaluations(epochs) + fields["evaluations"]
        return Reconstruction(**fields | {"evaluations": spent})

    def invert_round(self, number: int, parts: Parts) -> Reconstruction:
        """Reconstruct the update of one round of every victim."""
        return match(self.observation.of_round(number), parts)

    def first_jointly(self) -> Reconstruction:
        """Search for the first sample of the first update of each epoch of one victim."""
        rounds = range(0, self.observation.rounds, self.updates_of_epoch)
        places = _places([0] * self.epochs, self.observation.batch_size)
        return self._search(self.observation.of_victim(0), rounds, places)

    def _of_victim(self, row: int, epochs: Sequence[Reconstruction]) -> dict[str, np.ndarray]:
        """Reconstruct all samples of one victim, each by a separate search.

        Returns the victim's values by field of `Reconstruction`.
        """
        observation, size = self.observation.of_victim(row), self.observation.batch_size
        chains = [np.arange(len(epochs[0].labels[row]))]  # each sample's position in every epoch
        for earlier, later in pairwise(epochs):
            chains.append(self._partners(row, earlier, later)[chains[-1]])
        slots = np.stack(chains, 1)
        rounds = self.updates_of_epoch * np.arange(self.epochs) + slots // size
        results = [
            self._search(observation, numbers, _places(positions, size))
            for numbers, positions in zip(rounds.tolist(), (slots % size).tolist(), strict=True)
        ]
        return {
            "inputs": np.concatenate([result.inputs[0, :1] for result in results]),
            "labels": np.concatenate([result.labels[0, :1] for result in results]),
            "converged": np.asarray(all(result.converged[0] for result in results)),
            "evaluations": _evaluations(results)[0],
            "rounds": rounds,
        }

    def _partners(self, row: int, earlier: Reconstruction, later: Reconstruction) -> np.ndarray:
        """Pair each image of a victim's epoch with one of the next; Shape (N), positions there."""
        first, second = (torch.from_numpy(epoch.inputs[row]) for epoch in (earlier, later))
        costs = image_distances(first, second, pooled=self.pooled)
        if not self.label_filter:
            return pair_greedily(costs, torch.ones_like(costs, dtype=torch.bool))
        size = self.observation.batch_size
        of_updates = (
            torch.from_numpy(epoch.labels[row]).unflatten(0, (-1, size)).repeat_interleave(size, 0)
            for epoch in (earlier, later)
        )
        return pair_greedily(costs, share_a_label(*of_updates))

    def _search(
        self, observation: Observation, rounds: Sequence[int], places: Sequence[torch.Tensor]
    ) -> Reconstruction:
        """Search for samples in one update of each epoch at once."""
        weights = [1.0] + [self.gamma] * (self.epochs - 1)
        updates = [
            WeightedUpdate(observation.of_round(number), place, weight)
            for number, place, weight in zip(rounds, places, weights, strict=True)
        ]
        problem = JointMatching.of(updates, self.parts)
        steps = repeated_steps(observation, self.parts.client_model) * self.epochs
        return solve(problem, updates[0].observation, steps)


def _places(slots: Sequence[int], size: int) -> list[torch.Tensor]:
    """Assign the samples of batches of a size to samples of the search; Shape (size) each.

    The shared one, 0, is in the batches' slots; the others are separate samples.
    """
    places, first = [], 1
    for slot in slots:
        others = torch.arange(first, first + size - 1)
        places.append(torch.cat([others[:slot], torch.zeros(1, dtype=torch.long), others[slot:]]))
        first += size - 1
    return places


def _evaluations(results: Sequence[Reconstruction]) -> np.ndarray:
    """Sum the evaluations of all searches; Shape (V)."""
    counts = [result.evaluations for result in results if result.evaluations is not None]
    return np.sum(counts, axis=0)


@dataclass(frozen=True)
class WeightedUpdate:
    """Update of one round that takes part in a joint search, weighted by gamma in Eq. 5.

    Its places are the indices, among the samples of the search, of those of its batch; Shape (B).
    """

    observation: Observation
    places: torch.Tensor
    weight: float


@dataclass(frozen=True)
class JointMatching(Problem):
    """Weighted sum of the objectives of several updates whose batches share samples (AGIC Eq. 5).

    A sample that is in several batches is one unknown; the others of each batch are separate
    unknowns, constrained by their own update alone. Places and weights are those of the updates.
    """

    problems: tuple[GradientMatching, ...]
    places: tuple[torch.Tensor, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, updates: Sequence[WeightedUpdate], parts: Parts) -> Self:
        """Build the problem of updates of the same victims; labels are fixed.

        Together the updates' places are all integers from 0 on.
        """
        problems = tuple(GradientMatching.of(part.observation, parts) for part in updates)
        places = tuple(part.places.to(problems[0].device) for part in updates)
        count, first = 1 + max(int(place.max()) for place in places), problems[0]
        targets = first.like.new_zeros(len(first.like), count, first.classes)
        for problem, place in zip(reversed(problems), reversed(places), strict=True):
            assert problem.targets is not None
            targets[:, place] = problem.targets  # the first update's come last
        return cls(
            parts=parts,
            observed=first.observed,
            targets=targets,
            shape=(count, *first.shape[1:]),
            classes=first.classes,
            problems=problems,
            places=places,
            weights=tuple(part.weight for part in updates),
        )

    def keep(self, rows: torch.Tensor | slice) -> Self:
        problems = tuple(problem.keep(rows) for problem in self.problems)
        return replace(super().keep(rows), problems=problems)

    def evaluate(self, points: torch.Tensor) -> Evaluation:
        nothing = points.new_zeros(len(points))
        whole = Evaluation(nothing, nothing, torch.zeros_like(points))
        inputs = self.inputs(points)
        for problem, places, weight in zip(self.problems, self.places, self.weights, strict=True):
            evaluation = problem.evaluate(inputs[:, places].flatten(1))
            along = torch.zeros_like(inputs)
            along.index_add_(1, places, problem.inputs(evaluation.gradient))
            whole = whole.plus(replace(evaluation, gradient=along.flatten(1)), weight)
        return whole


def image_distances(first: torch.Tensor, second: torch.Tensor, pooled: bool) -> torch.Tensor:
    """Compute the mean squared error between N images of one epoch and M of the next.

    Shape (N, C, H, W) and (M, C, H, W) to (N, M). Pooled images are means of 2 x 2 pixels, which
    have less noise.
    """
    if pooled:
        first, second = (torch.nn.functional.avg_pool2d(images, 2) for images in (first, second))
    return torch.cdist(first.flatten(1), second.flatten(1)).square() / first[0].numel()


def share_a_label(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Mark pairs of images whose updates share a label, so that they may show the same sample.

    From the labels of the update of each image, Shape (N, B) and (M, B) to (N, M).
    """
    return (first[:, None, :, None] == second[None, :, None, :]).flatten(2).any(2)


def pair_greedily(costs: torch.Tensor, allowed: torch.Tensor) -> np.ndarray:
    """Compute one-to-one pairs, the cheapest first; pairs that are not allowed come last.

    Both are of Shape (N, N). Returns the partner of each row, Shape (N).
    """
    order = np.lexsort((costs.flatten().numpy(), ~allowed.flatten().numpy()))
    partner = np.full(len(costs), -1)
    taken = np.zeros(len(costs), dtype=bool)
    for row, column in zip(*np.unravel_index(order, costs.shape), strict=True):
        if partner[row] < 0 and not taken[column]:
            partner[row], taken[column] = column, True
    return partner
