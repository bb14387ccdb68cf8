"""Images made worse, as reconstructions are: ROG section 4.2 and Appendix A."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional

MODES = ("nearest", "bilinear", "bicubic")
REACH = 3
"""A blur's window goes so many deviations to each side."""
SHARPEST = 0.1


def degrade(
    images: Tensor, generator: Generator, *, scale: int, noise: float, blur: float
) -> Tensor:
    """Scale down and up, add noise and blur, each image in an order of its own.

    Args:
        images: Shape (M, C, H, W) in [0, 1].
        generator: on the CPU, so that a GPU changes no draw.
        scale: how many times smaller, by one of `MODES`.
        noise: largest standard deviation; each image's is drawn between none and this.
        blur: largest standard deviation of the Gaussian kernel, in pixels, likewise.

    Returns:
        Shape (M, C, H, W) in [0, 1].
    """
    ways: list[Callable[[Tensor], Tensor]] = [
        lambda image: rescale(image, scale, MODES[_pick(len(MODES), generator)]),
        lambda image: add_noise(image, noise * _share(generator), generator),
        lambda image: gaussian_blur(image, blur * _share(generator)),
    ]
    return torch.cat([_degrade_one(image[None], ways, generator) for image in images])


def _degrade_one(
    image: Tensor, ways: list[Callable[[Tensor], Tensor]], generator: Generator
) -> Tensor:
    for place in torch.randperm(len(ways), generator=generator).tolist():
        image = ways[place](image)
    return image.clamp(0, 1)


def _pick(count: int, generator: Generator) -> int:
    return int(torch.randint(count, (), generator=generator))


def _share(generator: Generator) -> float:
    return float(torch.rand((), generator=generator))


def rescale(images: Tensor, scale: int, mode: str) -> Tensor:
    """Scale down by a mode, and up again by bicubic interpolation; Shape (M, C, H, W)."""
    sides = images.shape[2:]
    small = [max(1, side // scale) for side in sides]
    reduced = functional.interpolate(images, size=small, mode=mode)
    return functional.interpolate(reduced, size=sides, mode="bicubic", align_corners=False)


def add_noise(images: Tensor, deviation: float, generator: Generator) -> Tensor:
    """Gaussian noise; Shape (M, C, H, W)."""
    noise = torch.randn(images.shape, generator=generator)
    return images + deviation * noise.to(images.device)


def gaussian_blur(images: Tensor, deviation: float) -> Tensor:
    """Gaussian blur, pixels at the border repeated beyond it; Shape (M, C, H, W).

    A deviation below 0.1 pixels leaves images as they are.
    """
    if deviation < SHARPEST:
        return images
    reach = max(1, round(REACH * deviation))
    places = torch.arange(-reach, reach + 1, device=images.device)
    kernel = torch.exp(-0.5 * (places / deviation) ** 2)
    kernel = (kernel / kernel.sum()).to(images.dtype)
    columns = functional.pad(images.flatten(0, 1)[:, None], [reach] * 4, mode="replicate")
    across = functional.conv2d(columns, kernel[None, None, None, :])
    return functional.conv2d(across, kernel[None, None, :, None]).view_as(images)
