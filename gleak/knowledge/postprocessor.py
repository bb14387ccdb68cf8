"""Postprocessor: coarse reconstructions enhanced by a generative adversarial network."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.knowledge.base import (
    SMALLEST_SIDE,
    LayeredSpec,
    LayerShape,
    Losses,
    Pyramid,
    Trainer,
    conv3x3,
    pyramid,
    take_step,
)

if TYPE_CHECKING:
    from gleak.knowledge.networks import UNet

DEEPEST = 4
WIDEST = 8
MODES = ("nearest", "bilinear", "bicubic")
REACH = 3
"""Radius of the blur's kernel, in standard deviations."""
SHARPEST = 0.1
"""Images are not blurred by smaller deviations, in pixels."""
LEAK = 0.2
PATCH_HALVINGS = 3
SMALLEST_PATCH = 4


@register("postprocessor")
class Postprocessor(LayeredSpec):
    """U-Net that enhances reconstructions, trained against a PatchGAN on degraded images.

    Images are degraded in three ways, in random order: downscaling and upscaling, noise, and blur.
    The loss is the mean absolute error plus ``adversarial`` times the adversarial loss. The
    network's output is added to the image and is zero before training.
    """

    source = "ROG section 4.2 and Appendix A"

    losses: ClassVar[tuple[str, ...]] = ("l1", "adversarial", "discriminator")

    lr: float = parameter(1e-5, "learning rate of both Adams", source="ROG Appendix A", gt=0)
    adversarial: float = parameter(
        0.01, "weight of the adversarial loss", source="pix2pix (Isola et al. 2017)", ge=0
    )
    scale: int = parameter(
        4, "factor by which images are downscaled", source="ROG section 4.2", ge=1
    )
    noise: float = parameter(
        0.1, "largest standard deviation of the noise", source="BSRGAN (Zhang et al. 2021)", ge=0
    )
    blur: float = parameter(
        2.8,
        "largest standard deviation of the blur",
        unit="px",
        source="BSRGAN (Zhang et al. 2021)",
        ge=0,
    )

    def pyramid(self, shape: tuple[int, ...]) -> Pyramid:
        """Return the sizes of features of images, with at most four halvings."""
        channels, sides, widths = pyramid(shape, self.width, WIDEST, None)
        return Pyramid(channels, sides[: DEEPEST + 1], widths[: DEEPEST + 1])

    def check_shape(self, shape: tuple[int, ...]) -> None:
        # Features are normalised after one halving, which needs several pixels.
        least = max(2 * SMALLEST_SIDE, self.scale)
        if min(shape[1:]) < least:
            raise IncompatibleError(
                f"knowledge {self} needs images of {least} pixels or more, not {shape}"
            )

    def build(self, shape: tuple[int, ...], classes: int) -> UNet:
        from gleak.knowledge.networks import UNet

        return UNet(self.pyramid(shape))

    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        return PostprocessorTrainer(self.build(shape, classes), self, shape)

    def layers(self, shape: tuple[int, ...], classes: int) -> list[LayerShape]:
        """Return the convolutions of the U-Net, without the few of the discriminator."""
        channels, sides, widths = sizes = self.pyramid(shape)
        return [
            LayerShape(channels, widths[0], sides[0]),
            *(LayerShape(wide, wide, side) for side, wide in zip(sides, widths, strict=True)),
            *(LayerShape(thin, wide, small) for (_, thin), (small, wide) in sizes.steps),
            *(LayerShape(wide, thin, large) for (large, thin), (_, wide) in sizes.steps),
            *(LayerShape(2 * thin, thin, large) for (large, thin), _ in sizes.steps),
            LayerShape(widths[0], channels, sides[0]),
        ]


def patch_discriminator(pyramid: Pyramid) -> torch.nn.Sequential:
    """Build a network for logits of patches being real; Shape (M, C, H, W) to (M, 1, h, w).

    PatchGAN (Isola et al. 2017): at most three halvings, no normalisation in the first layer.
    """
    halvings = sum(min(side) >= SMALLEST_PATCH for side in pyramid.sides[1:])
    channels = [pyramid.channels, *pyramid.widths[: min(halvings, PATCH_HALVINGS)]]
    layers: list[torch.nn.Module] = []
    for index, (inputs, outputs) in enumerate(pairwise(channels)):
        layers.append(torch.nn.Conv2d(inputs, outputs, 4, 2, padding=1))
        layers += [torch.nn.InstanceNorm2d(outputs)] if index else []
        layers.append(torch.nn.LeakyReLU(LEAK))
    return torch.nn.Sequential(*layers, conv3x3(channels[-1], 1))


class PostprocessorTrainer(Trainer):
    """Trainer on the mean absolute error plus an adversarial loss, with an Adam for each network.

    ROG Appendix A; the adversarial loss is the non-saturating one of Goodfellow et al. (2014).
    """

    def __init__(self, network: UNet, spec: Postprocessor, shape: tuple[int, ...]) -> None:
        self.network, self.spec = network, spec
        self.discriminator = patch_discriminator(spec.pyramid(shape))
        super().__init__(network, discriminator=self.discriminator)
        self.optimizers["generator"] = torch.optim.Adam(network.parameters(), spec.lr)
        judged = self.discriminator.parameters()
        self.optimizers["discriminator"] = torch.optim.Adam(judged, spec.lr)

    def learn(
        self, images: torch.Tensor, labels: torch.Tensor, generator: torch.Generator
    ) -> Losses:
        spec = self.spec
        coarse = degrade(images, generator, scale=spec.scale, noise=spec.noise, blur=spec.blur)
        enhanced = self.network.enhance(coarse)
        real = _adversarial_loss(self.discriminator(images), real=True)
        fake = _adversarial_loss(self.discriminator(enhanced.detach()), real=False)
        discriminator_loss = (real + fake) / 2
        take_step(self.optimizers["discriminator"], discriminator_loss)
        error = torch.nn.functional.l1_loss(enhanced, images)
        adversarial_loss = _adversarial_loss(self.discriminator(enhanced), real=True)
        take_step(self.optimizers["generator"], error + spec.adversarial * adversarial_loss)
        return {
            "l1": error.detach(),
            "adversarial": adversarial_loss.detach(),
            "discriminator": discriminator_loss.detach(),
        }


def _adversarial_loss(logits: torch.Tensor, *, real: bool) -> torch.Tensor:
    wanted = torch.full_like(logits, float(real))
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted)


def degrade(
    images: torch.Tensor, generator: torch.Generator, *, scale: int, noise: float, blur: float
) -> torch.Tensor:
    """Downscale and upscale images, add noise and blur, each image in its own random order.

    Images have Shape (M, C, H, W) in [0, 1]. Downscaling has a random mode of `MODES`; the standard
    deviations of noise and blur are uniform between 0 and the given ones. The generator is on the
    CPU, so that draws do not depend on the device.
    """
    degraded = []
    for image in images.split(1):
        for step in torch.randperm(3, generator=generator).tolist():
            if step == 0:
                mode = MODES[int(torch.randint(len(MODES), (), generator=generator))]
                image = rescale(image, scale, mode)
                continue
            share = float(torch.rand((), generator=generator))
            if step == 1:
                image = add_noise(image, noise * share, generator)
            else:
                image = gaussian_blur(image, blur * share)
        degraded.append(image.clamp(0, 1))
    return torch.cat(degraded)


def rescale(images: torch.Tensor, scale: int, mode: str) -> torch.Tensor:
    """Downscale by a mode and upscale by bicubic interpolation; Shape (M, C, H, W)."""
    sides = images.shape[2:]
    small = [max(1, side // scale) for side in sides]
    reduced = torch.nn.functional.interpolate(images, size=small, mode=mode)
    return torch.nn.functional.interpolate(reduced, size=sides, mode="bicubic", align_corners=False)


def add_noise(images: torch.Tensor, deviation: float, generator: torch.Generator) -> torch.Tensor:
    noise = torch.randn(images.shape, generator=generator)
    return images + deviation * noise.to(images.device)


def gaussian_blur(images: torch.Tensor, deviation: float) -> torch.Tensor:
    """Blur by a Gaussian kernel, with replicated borders; Shape (M, C, H, W)."""
    if deviation < SHARPEST:
        return images
    reach = max(1, round(REACH * deviation))
    offsets = torch.arange(-reach, reach + 1, device=images.device)
    kernel = torch.exp(-0.5 * (offsets / deviation) ** 2)
    kernel = (kernel / kernel.sum()).to(images.dtype)
    columns = torch.nn.functional.pad(images.flatten(0, 1)[:, None], [reach] * 4, mode="replicate")
    across = torch.nn.functional.conv2d(columns, kernel[None, None, None, :])
    return torch.nn.functional.conv2d(across, kernel[None, None, :, None]).view_as(images)
