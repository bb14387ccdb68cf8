"""Feature inversion: images whose embeddings point where given ones do (CPA section IV-B)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from gleak.matching.gradient_matching import GradientMatching
from gleak.matching.imagewise import ImagewiseProblem
from gleak.matching.problem import Evaluation, Problem, total_variation

EMBEDDINGS = "embeddings"


@dataclass(frozen=True)
class FeatureInversion(ImagewiseProblem):
    """One minus the cosine of each image's embedding with the wanted one, and total variation.

    Eq. 12 with its sign turned, the mean over a victim's images.

    Args:
        observed: the wanted ``embeddings``, one for each image; Shape (V, N, E).
        features: the network up to the embeddings, Shape (M, C, H, W) to (M, E).
    """

    features: Callable[[Tensor], Tensor]

    @property
    @override
    def wanted(self) -> list[Tensor]:
        return [self.observed[EMBEDDINGS]]

    @override
    def measure(self, unknowns: Tensor, *wanted: Tensor) -> tuple[Tensor, Tensor]:
        (embeddings,) = wanted
        images = unknowns.unflatten(1, self.shape[1:])
        distance = 1 - functional.cosine_similarity(self.features(images), embeddings)
        variation = self.parts.total_variation * total_variation(images[:, None])
        return distance + variation, distance


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

    @override
    def keep(self, rows: Tensor | slice) -> Self:
        return replace(
            super().keep(rows),
            inversion=self.inversion.keep(rows),
            matching=self.matching.keep(rows),
        )

    @override
    def evaluate(self, points: Tensor) -> Evaluation:
        matched = self.matching.evaluate(points)
        return self.inversion.evaluate(points).plus(matched, self.weight)
