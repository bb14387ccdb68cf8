"""Problems in which no image acts on another."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from gleak.matching.problem import Evaluation, Problem

VALUES_AT_ONCE = {"cpu": 2**17, "cuda": 2**24}


@dataclass(frozen=True)
class ImagewiseProblem(Problem):
    """The mean of what each of a victim's images is to minimise for itself.

    Images go through networks in groups that memory holds, whatever the size of the batch.
    """

    @property
    @abstractmethod
    def wanted(self) -> list[Tensor]:
        """What the images are measured by; Shape (V, N, ...) each."""

    @abstractmethod
    def measure(self, unknowns: Tensor, *wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Objective and distance of M images, each for itself; Shape (M) each.

        Args:
            unknowns: of each image; Shape (M, unknowns of an image).
            *wanted: what `wanted` gives, of these images; Shape (M, ...) each.
        """

    @override
    def evaluate(self, points: Tensor) -> Evaluation:
        samples = self.shape[0]
        unknowns = points[:, : self.values].reshape(len(points) * samples, -1)
        at_once = max(1, VALUES_AT_ONCE[points.device.type] // math.prod(self.shape[1:]))
        values = [unknowns, *(value.flatten(0, 1) for value in self.wanted)]
        groups = zip(*(value.split(at_once) for value in values), strict=True)
        found = [self._evaluate_group(*group) for group in groups]
        objective, distance, slopes = map(torch.cat, zip(*found, strict=True))
        gradient = torch.zeros_like(points)
        gradient[:, : self.values] = slopes.reshape(len(points), -1) / samples
        return Evaluation(
            objective.unflatten(0, (-1, samples)).mean(1),
            distance.unflatten(0, (-1, samples)).mean(1),
            gradient,
        )

    def _evaluate_group(self, unknowns: Tensor, *wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Objective, distance and the objective's gradient of some images."""
        unknowns = unknowns.detach().requires_grad_()
        objective, distance = self.measure(unknowns, *wanted)
        (slopes,) = torch.autograd.grad(objective.sum(), unknowns)
        return objective.detach(), distance.detach(), slopes
