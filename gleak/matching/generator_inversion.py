"""Generator inversion: codes whose images are like given ones (ROG section 6)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

import torch
from torch import Generator, Tensor
from torch.nn import functional
from typing_extensions import override

from gleak.matching.imagewise import ImagewiseProblem
from gleak.runtime.perceptual import perceptual_distances, perceptual_network

if TYPE_CHECKING:
    from gleak.artifacts.reconstruction import Reconstruction
    from gleak.knowledge.generative import ImageGenerator
    from gleak.matching.parts import SearchParts
    from gleak.observation import Observation

IMAGES = "images"
Dissimilarity = Callable[[Tensor, Tensor], Tensor]
"""Of M pairs of images, Shape (M, C, H, W) each in [0, 1]; Shape (M), differentiable."""
Terms = Sequence[tuple[float, Dissimilarity]]
"""Weights, and what they are of."""


@dataclass(frozen=True)
class GeneratorInversion(ImagewiseProblem):
    """A weighted sum of dissimilarities of each generated image and the wanted one (Eq. 19, 20).

    Unknowns are the codes; labels are those of the wanted images, and stay.

    Args:
        observed: the wanted ``images``; Shape (V, N, C, H, W).
        generator: codes and labels to images.
        terms: of the sum.
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
        """The problem of generating what an attack made of an observation, its labels given."""
        like = next(iter(observation.update.values()))
        labels = torch.from_numpy(coarse.labels).long()
        return cls(
            parts=parts,
            observed={IMAGES: torch.from_numpy(coarse.inputs).to(like)},
            targets=functional.one_hot(labels, observation.classes).to(like),
            shape=coarse.inputs.shape[1:],
            classes=observation.classes,
            generator=generator,
            terms=terms,
        )

    @property
    @override
    def values(self) -> int:
        return self.shape[0] * self.generator.code_size

    @property
    def labels(self) -> Tensor:
        """Class indices; Shape (V, N)."""
        assert self.targets is not None
        return self.targets.argmax(2)

    @property
    @override
    def wanted(self) -> list[Tensor]:
        return [self.observed[IMAGES], self.labels]

    @override
    def draw(self, generator: Generator, granted: Mapping[str, Tensor]) -> Tensor:
        """The start is one of codes."""
        shape = (self.shape[0], self.generator.code_size)
        return self.parts.start.draw(shape, generator, granted).flatten().to(self.device)

    @override
    def inputs(self, points: Tensor) -> Tensor:
        codes = points[:, : self.values].reshape(-1, self.generator.code_size)
        images = self.generator.generate(codes, self.labels.flatten())
        return images.unflatten(0, (-1, self.shape[0]))

    @override
    def measure(self, unknowns: Tensor, *wanted: Tensor) -> tuple[Tensor, Tensor]:
        images, labels = wanted
        found = self.generator.generate(unknowns, labels)
        parts = [weight * differ(found, images) for weight, differ in self.terms]
        objective = torch.stack(parts).sum(0)
        return objective, objective


def euclidean(one: Tensor, other: Tensor) -> Tensor:
    """Length of the difference of images, over all of their values; a `Dissimilarity`."""
    return torch.linalg.vector_norm((one - other).flatten(1), dim=1)


def perceptual(like: Tensor) -> Dissimilarity:
    """LPIPS, on the device and in the precision of a tensor.

    Raises:
        ArtifactError: see `gleak.runtime.perceptual.perceptual_network`.
    """
    return partial(perceptual_distances, copy.deepcopy(perceptual_network()).to(like))
