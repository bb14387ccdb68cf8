"""Prior of images by a denoiser that was trained on public ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, cast

from gleak.attacks.matching.priors import Prior
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch

if TYPE_CHECKING:
    from gleak.knowledge.networks import GradientStepDenoiser


@dataclass(frozen=True)
class DenoiserPrior(Prior):
    """Prior by what a denoiser learned of public images, beside that of natural ones, in nats.

    A denoiser's energy over the variance of its noise, E(x, s) / s^2, has the gradient
    (x - D(x, s)) / s^2, that of minus the logarithm of the density of images with noise of standard
    deviation s, as far as D is the best denoiser (Tweedie's formula; Hurault et al. 2022). It says
    nothing about details that the noise hides, and as a prior by itself it prefers images without
    any. So this is its difference from the energy of normal coefficients
    (`gleak.data.natural_images.ImagePrior`), an estimate of minus the logarithm of a ratio of
    densities, to be added to minus the logarithm of their density. It is zero before training, and
    the sum over the samples of a victim.

    Args:
        weight: see `Prior`.
        deviation: s, of intensities in [0, 1]; of the size of the errors to be corrected.
        network: the attacker's knowledge ``denoiser``; set by `of`.
    """

    title: ClassVar[str] = "denoiser prior"

    deviation: float = 0.2
    network: GradientStepDenoiser | None = None

    def of(self, observation: Observation) -> Self:
        return replace(
            self, network=cast("GradientStepDenoiser", observation.knowledge["denoiser"])
        )

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        assert self.network is not None, "set by `of`"
        images = inputs.flatten(0, 1)
        gains = self.network.gain(images, images.new_full((len(images),), self.deviation))
        return gains.view(inputs.shape[:2]).sum(1) / self.deviation**2
