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
    """Energy of a denoiser over the variance of its noise, summed over the samples of a victim.

    E(x, s) / s^2 has the gradient (x - D(x, s)) / s^2, that of minus the logarithm of the density
    of images with noise of standard deviation s, as far as D is the best denoiser (Tweedie's
    formula; Hurault et al. 2022). So it is in nats, up to a constant that depends on s: values for
    different s cannot be compared.

    Args:
        weight: see `Prior`.
        deviation: s, of intensities in [0, 1]. Larger ones prefer smoother images.
        network: the attacker's knowledge ``denoiser``; set by `of`.
    """

    title: ClassVar[str] = "denoiser prior"

    deviation: float = 0.05
    network: GradientStepDenoiser | None = None

    def of(self, observation: Observation) -> Self:
        return replace(
            self, network=cast("GradientStepDenoiser", observation.knowledge["denoiser"])
        )

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        assert self.network is not None, "set by `of`"
        images = inputs.flatten(0, 1)
        energies = self.network.energy(images, images.new_full((len(images),), self.deviation))
        return energies.view(inputs.shape[:2]).sum(1) / self.deviation**2
