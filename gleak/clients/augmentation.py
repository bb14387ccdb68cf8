"""Random crops and flips of a client's images."""

from __future__ import annotations

from typing import Literal

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch

Augmentation = Literal["crop", "flip", "crop_flip"]
PADDING = 4
"""Rows and columns of zeros on each side, of which a crop may contain some."""


def augmented(inputs: torch.Tensor, kind: Augmentation | None) -> torch.Tensor:
    """Return images after random changes, Shape (B, C, H, W); None: as they are.

    They are those of `RandomCrop` with a padding of 4 and of `RandomHorizontalFlip` in torchvision,
    with the same draws from torch's global generator, sample by sample.

    Raises:
        IncompatibleError: the samples are no images.
    """
    if kind is None:
        return inputs
    if inputs.ndim != 4:
        raise IncompatibleError(
            f"augmentation={kind} changes images, and samples have shape "
            f"{tuple(inputs.shape[1:])}; leave augmentation out"
        )
    return torch.stack([_augmented(sample, kind) for sample in inputs])


def _augmented(sample: torch.Tensor, kind: Augmentation) -> torch.Tensor:
    """Change one image, Shape (C, H, W)."""
    if kind != "flip":
        height, width = sample.shape[1:]
        top, left = (int(torch.randint(0, 2 * PADDING + 1, (1,))) for _ in range(2))
        padded = torch.nn.functional.pad(sample, [PADDING] * 4)
        sample = padded[:, top : top + height, left : left + width]
    flips = kind != "crop" and bool(torch.rand(1) < 0.5)
    return sample.flip(2) if flips else sample
