"""Feature inversion: images whose embeddings point where given ones do (CPA section IV-B)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from gleak.matching.gradient_matching import GradientMatching
from gleak.matching.problem import Evaluation, Problem, total_variation

EMBEDDINGS = "embeddings"
VALUES_AT_ONCE = {"cpu": 2**17, "cuda": 2**24}


@dataclass(frozen=True)
class FeatureInversion(Problem):
    """One minus the cosine of each image's embedding with the wanted one, and total variation.

    Eq. 12 with its sign turned, the mean over a victim's images. No image acts on another: they go
    through the network in groups that memory holds, whatever the size of the batch.

    Args:
        observed: the wanted ``embeddings``, one for each image; Shape (V, N, E).
        features: the network up to the embeddings, Shape (M, C, H, W) to (M, E).
    """

    features: Callable[[Tensor], Tensor]

    def evaluate(self, points: Tensor) -> Evaluation:
        """See `Problem.evaluate`."""
        images = self.inputs(points).flatten(0, 1)
        wanted = self.observed[EMBEDDINGS].flatten(0, 1)
        at_once = max(1, VALUES_AT_ONCE[images.device.type] // images[0].numel())
        groups = zip(images.split(at_once), wanted.split(at_once), strict=True)
        found = [self._evaluate_images(*group) for group in groups]
        objective, distance, slopes = map(torch.cat, zip(*found, strict=True))
        samples = self.shape[0]
        gradient = torch.zeros_like(points)
        gradient[:, : self.values] = slopes.reshape(len(points), -1) / samples
        return Evaluation(
            objective.unflatten(0, (-1, samples)).mean(1),
            distance.unflatten(0, (-1, samples)).mean(1),
            gradient,
        )

    def _evaluate_images(self, images: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Objective, distance and the objective's gradient of M images, each for itself."""
        images = images.detach().requires_grad_()
        distance = 1 - functional.cosine_similarity(self.features(images), wanted)
        variation = self.parts.total_variation * total_variation(images[:, None])
        objective = distance + variation
        (slopes,) = torch.autograd.grad(objective.sum(), images)
        return objective.detach(), distance.detach(), slopes


@dataclass(frozen=True)
class GuidedInversion(Problem):
    """Feature inversion and gradient matching of the same images (Eq. 13, its sign turned).

    Image i of a victim is the one whose embedding is sought to be the i-th. Which label belongs to
    which embedding nobody tells, so labels in an order of their own would be wrong.

    Args:
        observed: the gradients.
        targets: of the matching; its labels are the labels.
        inversion: for every image alone.
        matching: for each victim's images together.
        weight: of the matching's objective.
    """

    inversion: FeatureInversion
    matching: GradientMatching
    weight: float

    @classmethod
    def of(cls, inversion: FeatureInversion, matching: GradientMatching, weight: float) -> Self:
        """Both problems of the same victims as one, searched as the inversion is."""
        return cls(
            parts=inversion.parts,
            observed=matching.observed,
            targets=matching.targets,
            shape=matching.shape,
            classes=matching.classes,
            inversion=inversion,
            matching=matching,
            weight=weight,
        )

    def keep(self, rows: Tensor | slice) -> Self:
        """See `Problem.keep`."""
        return replace(
            super().keep(rows),
            inversion=self.inversion.keep(rows),
            matching=self.matching.keep(rows),
        )

    def evaluate(self, points: Tensor) -> Evaluation:
        """See `Problem.evaluate`."""
        matched = self.matching.evaluate(points)
        return self.inversion.evaluate(points).plus(matched, self.weight)
