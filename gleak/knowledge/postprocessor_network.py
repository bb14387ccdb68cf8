"""Networks, degradations and training of the postprocessor (ROG section 4.2 and Appendix A)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.optim import Adam
from typing_extensions import override

from gleak.knowledge.layer_shapes import conv3x3, zero_initialised
from gleak.knowledge.postprocessor import Plan, Postprocessor
from gleak.knowledge.train_knowledge import Losses, Trainer, descend

MODES = ("nearest", "bilinear", "bicubic")
REACH = 3
"""Radius of the blur's kernel, in standard deviations."""
SHARPEST = 0.1


def degrade(
    images: Tensor, generator: Generator, *, scale: int, noise: float, blur: float
) -> Tensor:
    """Downscale and upscale images, add noise and blur, each image in its own random order.

    Args:
        images: Shape (M, C, H, W) in [0, 1].
        generator: on the CPU, so that draws do not depend on the device.
        scale: downscaling factor, with a random mode of `MODES`.
        noise: largest standard deviation; that of each image is uniform between 0 and this.
        blur: largest standard deviation of the Gaussian kernel, in pixels, likewise.

    Returns:
        Shape (M, C, H, W) in [0, 1].
    """
    steps: list[Callable[[Tensor], Tensor]] = [
        lambda image: rescale(image, scale, MODES[_random_index(len(MODES), generator)]),
        lambda image: add_noise(image, noise * _random_fraction(generator), generator),
        lambda image: gaussian_blur(image, blur * _random_fraction(generator)),
    ]
    return torch.cat([_degrade_one(image[None], steps, generator) for image in images])


def _degrade_one(
    image: Tensor, steps: list[Callable[[Tensor], Tensor]], generator: Generator
) -> Tensor:
    for index in torch.randperm(len(steps), generator=generator).tolist():
        image = steps[index](image)
    return image.clamp(0, 1)


def _random_index(count: int, generator: Generator) -> int:
    return int(torch.randint(count, (), generator=generator))


def _random_fraction(generator: Generator) -> float:
    return float(torch.rand((), generator=generator))


def rescale(images: Tensor, scale: int, mode: str) -> Tensor:
    """Downscale by a mode and upscale by bicubic interpolation; Shape (M, C, H, W)."""
    sides = images.shape[2:]
    small = [max(1, side // scale) for side in sides]
    reduced = functional.interpolate(images, size=small, mode=mode)
    return functional.interpolate(reduced, size=sides, mode="bicubic", align_corners=False)


def add_noise(images: Tensor, deviation: float, generator: Generator) -> Tensor:
    """Add Gaussian noise; Shape (M, C, H, W)."""
    noise = torch.randn(images.shape, generator=generator)
    return images + deviation * noise.to(images.device)


def gaussian_blur(images: Tensor, deviation: float) -> Tensor:
    """Blur by a Gaussian kernel, with replicated borders; Shape (M, C, H, W).

    Images are not changed by deviations below 0.1 pixels.
    """
    if deviation < SHARPEST:
        return images
    reach = max(1, round(REACH * deviation))
    offsets = torch.arange(-reach, reach + 1, device=images.device)
    kernel = torch.exp(-0.5 * (offsets / deviation) ** 2)
    kernel = (kernel / kernel.sum()).to(images.dtype)
    columns = functional.pad(images.flatten(0, 1)[:, None], [reach] * 4, mode="replicate")
    across = functional.conv2d(columns, kernel[None, None, None, :])
    return functional.conv2d(across, kernel[None, None, :, None]).view_as(images)


LEAK = 0.2
PATCH_HALVINGS = 3
SMALLEST_PATCH = 4


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Build a convolution, instance normalisation and ReLU."""
    return nn.Sequential(conv3x3(inputs, outputs, stride), nn.InstanceNorm2d(outputs), nn.ReLU())


class Down(nn.Sequential):
    """Block that halves the resolution."""

    def __init__(self, thin: int, wide: int) -> None:
        super().__init__(block(thin, wide, stride=2), block(wide, wide))


class Up(nn.Module):
    """Block that upsamples features and concatenates those of the skip connection."""

    def __init__(self, wide: int, thin: int) -> None:
        super().__init__()
        self.narrow, self.join = block(wide, thin), block(2 * thin, thin)

    def forward(self, features: Tensor, skipped: Tensor) -> Tensor:
        """Map Shape (M, wide, h, w) and (M, thin, H, W) to (M, thin, H, W)."""
        height, width = skipped.shape[2:]
        enlarged = self.narrow(functional.interpolate(features, (height, width)))
        joined: Tensor = self.join(torch.cat([enlarged, skipped], dim=1))
        return joined


class UNet(nn.Module):
    """Enhancement of images by a residual.

    Args:
        plan: layer sizes.

    Ronneberger et al. (2015), with instance normalisation; ROG Appendix A.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        narrow, levels = plan.widths[0], list(pairwise(plan.widths))
        self.first = nn.Sequential(block(plan.channels, narrow), block(narrow, narrow))
        self.down = nn.ModuleList(Down(thin, wide) for thin, wide in levels)
        self.up = nn.ModuleList(Up(wide, thin) for thin, wide in reversed(levels))
        self.last = zero_initialised(conv3x3(narrow, plan.channels))

    def enhance(self, images: Tensor) -> Tensor:
        """Enhance images without clipping to [0, 1], which would cut off gradients in training."""
        features = [self.first(images)]
        for down in self.down:
            features.append(down(features[-1]))
        outputs = features.pop()
        for up in self.up:
            outputs = up(outputs, features.pop())
        return images + self.last(outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Enhance images; Shape (M, C, H, W) in [0, 1]."""
        return self.enhance(images).clamp(0, 1)


def patch_discriminator(plan: Plan) -> nn.Sequential:
    """Build a network for logits of patches being real; Shape (M, C, H, W) to (M, 1, h, w).

    PatchGAN (Isola et al. 2017): at most three halvings, no normalisation in the first layer.
    """
    halvings = sum(min(side) >= SMALLEST_PATCH for side in plan.sides[1:])
    channels = [plan.channels, *plan.widths[: min(halvings, PATCH_HALVINGS)]]
    layers: list[nn.Module] = []
    for index, (inputs, outputs) in enumerate(pairwise(channels)):
        layers.append(nn.Conv2d(inputs, outputs, 4, 2, padding=1))
        layers += [nn.InstanceNorm2d(outputs)] if index else []
        layers.append(nn.LeakyReLU(LEAK))
    return nn.Sequential(*layers, conv3x3(channels[-1], 1))


class PostprocessorTrainer(Trainer):
    """Trainer on the mean absolute error plus an adversarial loss, with an Adam for each network.

    Args:
        network: the U-Net.
        spec: weights, learning rate and degradations.
        shape: of an image.

    ROG Appendix A; the adversarial loss is the non-saturating one of Goodfellow et al. (2014).
    """

    network: UNet

    def __init__(self, network: UNet, spec: Postprocessor, shape: tuple[int, ...]) -> None:
        super().__init__(network)
        self.spec = spec
        self.discriminator = patch_discriminator(spec.plan(shape))
        self.optimizers["generator"] = Adam(network.parameters(), spec.lr)
        self.optimizers["discriminator"] = Adam(self.discriminator.parameters(), spec.lr)

    @override
    def learn(self, images: Tensor, labels: Tensor, generator: Generator) -> Losses:
        spec = self.spec
        coarse = degrade(images, generator, scale=spec.scale, noise=spec.noise, blur=spec.blur)
        enhanced = self.network.enhance(coarse)
        discriminator_loss = self._train_discriminator(images, enhanced.detach())
        error = functional.l1_loss(enhanced, images)
        adversarial_loss = _adversarial_loss(self.discriminator(enhanced), real=True)
        descend(self.optimizers["generator"], error + spec.adversarial * adversarial_loss)
        return {
            "l1": error.detach(),
            "adversarial": adversarial_loss.detach(),
            "discriminator": discriminator_loss.detach(),
        }

    def _train_discriminator(self, images: Tensor, enhanced: Tensor) -> Tensor:
        """Perform one step of the discriminator and return its loss."""
        real = _adversarial_loss(self.discriminator(images), real=True)
        fake = _adversarial_loss(self.discriminator(enhanced), real=False)
        loss = (real + fake) / 2
        descend(self.optimizers["discriminator"], loss)
        return loss


def _adversarial_loss(logits: Tensor, *, real: bool) -> Tensor:
    """Compute the cross-entropy of logits with patches all real or all generated."""
    wanted = torch.full_like(logits, float(real))
    return functional.binary_cross_entropy_with_logits(logits, wanted)
