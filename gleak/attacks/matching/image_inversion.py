"""Inversion of features and of generators, problems in which images do not interact."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.matching import kernels
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.optimizers import Evaluation
from gleak.attacks.matching.parts import SearchParts
from gleak.attacks.matching.problem import Problem
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch
from gleak.knowledge.base import ImageGenerator
from gleak.runtime.perceptual import perceptual_distances, perceptual_network

EMBEDDINGS = "embeddings"
CPU_VALUES, GPU_VALUES = 2**17, 2**24
"""Largest number of input values that are processed at once."""
Dissimilarity = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Differentiable function of M pairs of images in [0, 1], Shape (M, C, H, W) each, to Shape (M)."""
Terms = Sequence[tuple[float, Dissimilarity]]
"""Dissimilarities with their weights."""


@dataclass(frozen=True)
class ImagewiseProblem(Problem):
    """Base class of problems with the mean of separate objectives of the victim's images.

    Images are evaluated in groups that fit into memory, whatever the size of the batch.
    """

    @property
    @abstractmethod
    def wanted(self) -> list[torch.Tensor]:
        """Targets of the images; Shape (V, N, ...) each."""

    @abstractmethod
    def measure(
        self, unknowns: torch.Tensor, *wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute objective and distance of M images from their unknowns, Shape (M, ...)."""

    def evaluate(self, points: torch.Tensor) -> Evaluation:
        samples = self.shape[0]
        unknowns = points[:, : self.values].reshape(len(points) * samples, -1)
        most = CPU_VALUES if kernels.on_cpu(points) else GPU_VALUES
        at_once = max(1, most // math.prod(self.shape[1:]))
        values = [unknowns, *(value.flatten(0, 1) for value in self.wanted)]
        evaluated = []
        for group, *wanted in zip(*(value.split(at_once) for value in values), strict=True):
            group = group.detach().requires_grad_()
            objective, distance = self.measure(group, *wanted)
            (slopes,) = torch.autograd.grad(objective.sum(), group)
            evaluated.append((objective.detach(), distance.detach(), slopes))
        objective, distance, slopes = map(torch.cat, zip(*evaluated, strict=True))
        gradient = torch.zeros_like(points)
        gradient[:, : self.values] = slopes.reshape(len(points), -1) / samples
        return Evaluation(
            objective.unflatten(0, (-1, samples)).mean(1),
            distance.unflatten(0, (-1, samples)).mean(1),
            gradient,
        )


@dataclass(frozen=True)
class FeatureInversion(ImagewiseProblem):
    """One minus the cosine of each image's embedding with the target one, plus the image's priors.

    CPA Eq. 12 with the opposite sign (section IV-B), the mean over a victim's images. The network
    up to the embeddings maps Shape (M, C, H, W) to (M, E); those observed have Shape (V, N, E).
    """

    features: Callable[[torch.Tensor], torch.Tensor]

    @property
    def wanted(self) -> list[torch.Tensor]:
        return [self.observed[EMBEDDINGS]]

    def measure(
        self, unknowns: torch.Tensor, *wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        (embeddings,) = wanted
        images = unknowns.unflatten(1, self.shape[1:])
        distance = 1 - torch.nn.functional.cosine_similarity(self.features(images), embeddings)
        objective = distance
        for prior in self.parts.used_priors:
            objective = objective + prior.weight * prior(images[:, None])
        return objective, distance


@dataclass(frozen=True)
class GuidedInversion(Problem):
    """Feature inversion and gradient matching of the same images (CPA Eq. 13, negated).

    Image i of a victim corresponds to embedding i. Which label belongs to which embedding is
    unknown, so labels in an independent order would be wrong; gradients and labels are those of the
    matching, whose objective has a weight.
    """

    inversion: FeatureInversion
    matching: GradientMatching
    weight: float

    @classmethod
    def of(cls, inversion: FeatureInversion, matching: GradientMatching, weight: float) -> Self:
        """Combine both problems of the same victims, with the search settings of the inversion."""
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

    def keep(self, rows: torch.Tensor | slice) -> Self:
        inversion, matching = self.inversion.keep(rows), self.matching.keep(rows)
        return replace(super().keep(rows), inversion=inversion, matching=matching)

    def in_microbatches(self, count: int) -> Self | None:
        matching = self.matching.in_microbatches(count)
        return None if matching is None else replace(self, matching=matching)

    def evaluate(self, points: torch.Tensor) -> Evaluation:
        matched = self.matching.evaluate(points)
        return self.inversion.evaluate(points).plus(matched, self.weight)


@dataclass(frozen=True)
class GeneratorInversion(ImagewiseProblem):
    """Weighted sum of dissimilarities of each generated image and the target one (ROG Eq. 19, 20).

    Unknowns are the codes; labels are those of the target images, and fixed.
    """

    generator: ImageGenerator
    terms: Terms

    @classmethod
    def of(
        cls,
        coarse: Reconstruction,
        observation: Observation,
        parts: SearchParts,
        generator: ImageGenerator,
        terms: Terms,
    ) -> Self:
        """Build the problem of generating an attack's reconstruction, with its labels."""
        like = next(iter(observation.update.values()))
        labels = torch.from_numpy(coarse.labels).long()
        return cls(
            parts=parts,
            observed={"images": torch.from_numpy(coarse.inputs).to(like)},
            targets=torch.nn.functional.one_hot(labels, observation.classes).to(like),
            shape=coarse.inputs.shape[1:],
            classes=observation.classes,
            generator=generator,
            terms=terms,
        )

    @property
    def values(self) -> int:
        return self.shape[0] * self.generator.code_size

    @property
    def labels(self) -> torch.Tensor:
        assert self.targets is not None
        return self.targets.argmax(2)

    @property
    def wanted(self) -> list[torch.Tensor]:
        return [self.observed["images"], self.labels]

    def draw(self, generator: torch.Generator, granted: Mapping[str, torch.Tensor]) -> torch.Tensor:
        shape = (self.shape[0], self.generator.code_size)
        return self.parts.start.draw(shape, generator, granted).flatten().to(self.like)

    def inputs(self, points: torch.Tensor) -> torch.Tensor:
        codes = points[:, : self.values].reshape(-1, self.generator.code_size)
        images = self.generator.generate(codes, self.labels.flatten())
        return images.unflatten(0, (-1, self.shape[0]))

    def measure(
        self, unknowns: torch.Tensor, *wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = wanted
        generated = self.generator.generate(unknowns, labels)
        terms = [weight * differ(generated, images) for weight, differ in self.terms]
        objective = torch.stack(terms).sum(0)
        return objective, objective


def euclidean(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Compute the length of the difference of images, over all values; a `Dissimilarity`."""
    return torch.linalg.vector_norm((one - other).flatten(1), dim=1)


def perceptual(like: torch.Tensor) -> Dissimilarity:
    """Return LPIPS on the device and in the precision of a tensor.

    Raises:
        ArtifactError: see `gleak.runtime.perceptual.perceptual_network`.
    """
    return partial(perceptual_distances, copy.deepcopy(perceptual_network()).to(like))
