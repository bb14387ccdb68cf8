"""Posterior probability of samples and labels, given what was sent, and the search for the best.

Minus its logarithm, in nats, is C(x, y) = L(x, y) + P(x): that of the likelihood of what was sent
(`gleak.attacks.matching.distances.ProfileLikelihood`) and of the density of natural images
(`gleak.attacks.matching.priors.NaturalImages`). An attacker can compute it for any samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching.distances import SquaredError
from gleak.attacks.matching.engine import solve
from gleak.attacks.matching.gradient_matching import DrawnMatching, GradientMatching
from gleak.attacks.matching.gradients import repeated_steps
from gleak.attacks.matching.label_inference import labels_of_samples
from gleak.attacks.matching.label_search import (
    hypotheses_at_once,
    improved_labels,
    label_changes,
    labels_by_rule,
    likely_labels,
    objective_of,
    with_labels,
)
from gleak.attacks.matching.parts import Parts
from gleak.attacks.matching.problem import CodedProblem, Problem
from gleak.attacks.matching.starts import ESTIMATE, Estimate
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch

LEVELS = (0.5, 0.1)
"""Values of the grey images at which label hypotheses are first compared.

Trained networks are sure of a class for grey images of some brightness, so that the gradient of
another label is large, and its search slow.
"""
HYPOTHESES = 10
"""Number of label hypotheses of a batch at each level."""
CLASSES = 100
"""Number of label hypotheses of one sample at each level."""
ROUNDS = ((20, 3), (3, 10), (1, 30))
"""Numbers of searches for label hypotheses that are left, if there were more, after so many
evaluations of each.

Of a batch, whose samples take longer to differ, twice as many are made.
"""


@dataclass(frozen=True)
class Posterior:
    """Posterior of the samples of V victims.

    Args:
        observation: of the victims.
        problem: minus the logarithm of the posterior, as a function of the samples.
    """

    observation: Observation
    problem: GradientMatching

    @classmethod
    def of(cls, observation: Observation, parts: Parts) -> Self:
        """Return the posterior by an attack's parts, whose labels are enumerated."""
        kind = DrawnMatching if parts.draws == "searched" else GradientMatching
        return cls(observation, kind.of(observation, parts))

    def keep(self, rows: np.ndarray) -> Self:
        """Return the posterior of some victims, which may be repeated; Shape (W), indices."""
        index = torch.from_numpy(rows).to(self.problem.device)
        return replace(
            self, observation=self.observation.of_victims(rows), problem=self.problem.keep(index)
        )

    def points(self, inputs: np.ndarray) -> torch.Tensor:
        """Return the problem's unknowns at samples, with draws of zero; Shape (V, P)."""
        flat = torch.from_numpy(inputs).flatten(1).to(self.problem.like)
        return torch.nn.functional.pad(flat, (0, self.problem.unknowns - flat.shape[1]))

    def criterion(self, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Compute C at samples, Shape (V, N, ...), with labels, (V, N); infinite for NaN."""
        given = torch.from_numpy(labels)[:, None]
        return objective_of(self.problem, self.points(inputs), given)[:, 0].cpu().numpy()

    def gradients(self, inputs: np.ndarray, labels: np.ndarray) -> dict[str, torch.Tensor]:
        """Compute the mean gradients of samples, Shape (V, N, ...), with labels, (V, N).

        Shape (V, *shape) each.
        """
        stated = with_labels(self.problem, torch.from_numpy(labels))
        points = self.points(inputs)
        pieces = stated.gradients(
            stated.network_inputs(points).requires_grad_(),
            stated.soft_labels(points),
            stated.observed,
        )
        return {piece.name: piece.formed().gradient.detach() for piece in pieces}

    @property
    def determined(self) -> np.ndarray:
        """True if at least as many values were sent as the samples have; Shape (V), a mask."""
        return self.sent_share >= 1

    @cached_property
    def sent_share(self) -> np.ndarray:
        """Number of values that were sent, relative to that of the samples; Shape (V)."""
        problem, counts = self.problem, torch.zeros(self.observation.victims)
        for name, value in problem.observed.items():
            if name in problem.sent:
                counts += problem.sent[name].flatten(1).sum(1).cpu()
            elif name in problem.bases:
                basis = problem.bases[name]
                counts += value[0].numel() // basis.shape[1] * basis.shape[2]
            else:
                counts += value[0].numel()
        return (counts / problem.values).numpy()

    def squared_error(self, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Compute the error of what was sent relative to its mean square; Shape (V)."""
        distance = SquaredError().of(self.observation)
        own = replace(self.problem.parts, distance=distance, priors=())
        stated = replace(self, problem=replace(self.problem, parts=own, priors=()))
        return stated.criterion(inputs, labels)

    def labelled(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the labels of samples, given those of an attack, -1 where unknown.

        Labels of a batch may be given in any order, so they are also computed from the samples. The
        better ones are changed while that lowers the criterion.

        Args:
            inputs: Shape (V, N, ...).
            labels: Shape (V, N).

        Returns:
            The labels, Shape (V, N), and the criterion, Shape (V).
        """
        points, known = self.points(inputs), torch.from_numpy(labels)
        hypotheses = known[:, None]
        if bool((known < 0).any()) or known.shape[1] > 1:
            computed = labels_of_samples(self.observation, inputs, labels)
            hypotheses = torch.stack([known.where(known >= 0, computed), computed], 1)
        criterion, least = objective_of(self.problem, points, hypotheses).cpu().min(1)
        known = hypotheses[torch.arange(len(hypotheses)), least]
        found = improved_labels(self.problem, points, known).cpu().numpy()
        if (found == known.numpy()).all():
            return found, criterion.numpy()
        return found, self.criterion(inputs, found)

    def likely_labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the most probable labels, and the evaluations that they took; (V, N) and (V).

        Of large batches, of which one label says little, those of the rule.
        """
        labels, certain = labels_by_rule(self.observation)
        labels, open_victims = labels.cpu(), np.flatnonzero(~certain.cpu().numpy())
        spent = np.zeros(len(labels), dtype=int)
        if len(open_victims) and label_changes(labels.shape[1]):
            found, evaluations = self.keep(open_victims)._enumerated(labels[open_victims])
            labels[open_victims], spent[open_victims] = found, evaluations
        return labels.numpy(), spent

    def _enumerated(self, labels: torch.Tensor) -> tuple[torch.Tensor, int]:
        """Search samples for the likeliest hypotheses about the labels, Shape (V, N)."""
        victims, shape = np.arange(len(labels)), (len(labels), *self.problem.shape)
        levels = [np.full(shape, level, dtype=np.float32) for level in LEVELS]
        most, found = HYPOTHESES if labels.shape[1] > 1 else CLASSES, []
        for level in levels:
            own = improved_labels(self.problem, self.points(level), labels)
            found.append(likely_labels(self.problem, self.points(level), own, most))
        hypotheses, counts = torch.cat(found, 1), [one.shape[1] for one in found]
        starts = np.stack(levels, 1).repeat(counts, 1).reshape(-1, *self.problem.shape)
        spent = hypotheses.shape[1]
        for kept, single in ROUNDS:
            iterations = single * min(2, labels.shape[1])
            count = hypotheses.shape[1]
            if count <= kept:
                continue
            rows, labels_tried = victims.repeat(count), hypotheses.flatten(0, 1).numpy()
            inputs, objective = self._tried(rows, labels_tried, iterations, starts)
            order = objective.reshape(-1, count).argsort(1, kind="stable")
            chosen = order[:, :kept] + count * victims[:, None]
            hypotheses = hypotheses.flatten(0, 1)[torch.from_numpy(chosen)]
            starts, spent = (
                inputs[chosen].reshape(-1, *self.problem.shape),
                spent + count * iterations,
            )
        return hypotheses[:, 0], spent

    def _tried(
        self, rows: np.ndarray, labels: np.ndarray, iterations: int, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search samples of victims, which are repeated, as many at once as memory holds.

        Returns:
            The samples, Shape (W, N, ...), and the objective, Shape (W).
        """
        most = hypotheses_at_once(self.problem)
        found = [
            self.keep(rows[part]).search(labels[part], iterations, starts[part])
            for part in (slice(first, first + most) for first in range(0, len(rows), most))
        ]
        objectives = [np.asarray(one.objective) for one in found]
        return np.concatenate([one.inputs for one in found]), np.concatenate(objectives)

    def search(
        self,
        labels: np.ndarray,
        iterations: int,
        start: np.ndarray | None = None,
        **parts: Any,
    ) -> Reconstruction:
        """Search the samples of greatest posterior probability.

        Args:
            labels: Shape (V, N).
            iterations: budget of each victim.
            start: samples to begin at, Shape (V, N, ...); None: as the parts say.
            **parts: of the search, in place of the posterior's.
        """
        observation, changed = self.observation, {"iterations": iterations, **parts}
        if start is not None:
            given = torch.from_numpy(start).to(self.problem.like)
            observation = replace(observation, granted={**observation.granted, ESTIMATE: given})
            changed |= {"start": Estimate()}
        own = replace(self.problem.parts, **changed)
        own = replace(own, distance=own.distance.of(observation))
        stated = replace(
            self.problem,
            parts=own,
            priors=tuple(prior.of(observation) for prior in own.used_priors),
        )
        problem: Problem = with_labels(stated, torch.from_numpy(labels))
        coder = own.code.coder(observation)
        if coder is not None:
            problem = CodedProblem.of(problem, coder)
        return solve(problem, observation, repeated_steps(observation, own.client_model))
