"""Samples sought in the updates of several epochs (AGIC section IV-B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from gleak.artifacts.reconstruction import Reconstruction
from gleak.matching.client_training import repeated_steps
from gleak.matching.engine import match, solve
from gleak.matching.joint import JointMatching, Part
from gleak.matching.pairing import distances, pair_greedily, share_a_label

if TYPE_CHECKING:
    from gleak.matching.parts import Parts
    from gleak.observation import Observation


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
