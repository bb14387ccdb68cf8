"""Denoiser: a prior of images, learned by removing noise from public ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.natural_images import ImagePrior
from gleak.knowledge.base import LayeredSpec, LayerShape, Losses, Trainer, halved, take_step

if TYPE_CHECKING:
    from gleak.knowledge.networks import GradientStepDenoiser

LEAST, MOST = 0.005, 0.5
"""Standard deviations of the noise in training; their logarithm is uniform."""


@register("denoiser")
class Denoiser(LayeredSpec):
    """Denoiser that is a gradient step on an energy, trained on images with Gaussian noise.

    The energy over the variance of the noise approximates, in nats and up to a constant, minus the
    logarithm of the density of noisy images (Tweedie's formula), so it is a prior for searches
    (`gleak.attacks.matching.denoiser_prior`). Before training it is that of normal coefficients
    with the spectrum of natural images (`gleak.data.natural_images`), so that few steps suffice.
    """

    source = "Cohen et al. 2021, Hurault et al. 2022; architecture ours"

    losses: ClassVar[tuple[str, ...]] = ("relative_mse",)

    width: int = parameter(32, "channels at half the resolution of the images", ge=1)

    def build(self, shape: tuple[int, ...], classes: int) -> GradientStepDenoiser:
        from gleak.knowledge.networks import GradientStepDenoiser

        return GradientStepDenoiser(shape[0], self.width)

    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        return DenoiserTrainer(self.build(shape, classes), self.lr, shape)

    def layers(self, shape: tuple[int, ...], classes: int) -> list[LayerShape]:
        """Return the layers of the residual, which a step runs forwards and backwards."""
        channels, height, base = shape
        thin, wide = self.width, 2 * self.width
        half = halved((height, base))
        quarter = halved(half)
        return [
            LayerShape(channels + 1, thin, half),
            *[LayerShape(thin, thin, half)] * 4,
            LayerShape(thin, wide, quarter),
            *[LayerShape(wide, wide, quarter)] * 4,
            LayerShape(wide, thin, quarter),
            LayerShape(thin, 4 * channels, half),
        ]


class DenoiserTrainer(Trainer):
    """Trainer by Adam on the squared error of images from which noise is removed.

    It is relative to the error expected of normal coefficients, so that every noise counts alike.
    """

    def __init__(self, network: GradientStepDenoiser, lr: float, shape: tuple[int, ...]) -> None:
        super().__init__(network)
        self.network = network
        self.variances = ImagePrior.natural(shape, torch.zeros(())).variances
        self.optimizers["adam"] = torch.optim.Adam(network.parameters(), lr)

    def learn(
        self, images: torch.Tensor, labels: torch.Tensor, generator: torch.Generator
    ) -> Losses:
        share = torch.rand(len(images), generator=generator)
        deviations = LEAST * (math.log(MOST / LEAST) * share).exp()
        noise = torch.randn(images.shape, generator=generator)
        noisy = images + (deviations[:, None, None, None] * noise).to(images)
        denoised = self.network.denoise(noisy, deviations.to(images))
        errors = (denoised - images).square().flatten(1).mean(1)
        precisions = 1 / self.variances + deviations[:, None] ** -2
        loss = (errors / (1 / precisions).mean(1).to(errors)).mean()
        take_step(self.optimizers["adam"], loss)
        return {"relative_mse": loss.detach()}
