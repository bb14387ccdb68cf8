"""The autoencoder of a codec, and its training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.optim import Adam
from typing_extensions import override

from gleak.knowledge.codec import Plan
from gleak.knowledge.convolutions import Sides
from gleak.knowledge.layers import Enlarge, conv, enlarge, silenced
from gleak.knowledge.trainer import Losses, Trainer, descend

DARKEST = 0.02
"""Intensities are kept so far from 0 and 1 before their logits are taken."""


class Residual(nn.Module):
    """Two convolutions beside the identity.

    Args:
        width: channels.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.SiLU(), conv(width, width), nn.SiLU(), conv(width, width))

    def forward(self, features: Tensor) -> Tensor:
        """Shape (M, width, H, W), as it came."""
        return features + self.inner(features)


class Autoencoder(nn.Module):
    """Images to codes and back.

    What is learned is added to the logits of the image scaled down, in the first channels of the
    code, and to the logits of these scaled up; it begins as nothing.

    Args:
        plan: its sizes.
        size: numbers of a code.
    """

    def __init__(self, plan: Plan, size: int) -> None:
        super().__init__()
        self.plan, self.size = plan, size
        narrow, wide = plan.widths[0], plan.widths[-1]
        self.encoder = nn.Sequential(
            conv(plan.channels, narrow),
            *_down(plan.widths),
            nn.SiLU(),
            silenced(conv(wide, plan.code)),
        )
        self.decoder = nn.Sequential(
            conv(plan.code, wide),
            *_up(plan.widths, plan.sides),
            nn.SiLU(),
            silenced(conv(narrow, plan.channels)),
        )

    def encode(self, images: Tensor) -> Tensor:
        """Codes of images; Shape (M, C, H, W) in [0, 1] to (M, size)."""
        small = functional.adaptive_avg_pool2d(images, self.plan.sides[-1]).logit(DARKEST)
        picture = self.encoder(images) + with_channels(small, self.plan.code)
        return picture.flatten(1)[:, : self.size]

    def decode(self, codes: Tensor) -> Tensor:
        """Images of codes; Shape (M, size) to (M, C, H, W) in [0, 1]."""
        shape = (self.plan.code, *self.plan.sides[-1])
        filled = functional.pad(codes, (0, math.prod(shape) - self.size))
        picture = filled.unflatten(1, shape)
        large = enlarge(with_channels(picture, self.plan.channels), self.plan.sides[0])
        images: Tensor = (self.decoder(picture) + large).sigmoid()
        return images

    def forward(self, images: Tensor) -> Tensor:
        """What is left of images after coding; Shape (M, C, H, W) in [0, 1]."""
        return self.decode(self.encode(images))


def with_channels(picture: Tensor, channels: int) -> Tensor:
    """The first channels of a picture, and zeros where it has fewer."""
    missing = max(0, channels - picture.shape[1])
    return functional.pad(picture[:, :channels], (0, 0, 0, 0, 0, missing))


def _down(widths: Sequence[int]) -> list[nn.Module]:
    pairs = [[conv(thin, wide, stride=2), Residual(wide)] for thin, wide in pairwise(widths)]
    return [layer for pair in pairs for layer in pair]


def _up(widths: Sequence[int], sides: Sequence[Sides]) -> list[nn.Module]:
    levels = reversed(list(zip(sides, pairwise(widths), strict=False)))
    found = [[Residual(wide), Enlarge(side), conv(wide, thin)] for side, (thin, wide) in levels]
    return [layer for layers in found for layer in layers]


class AutoencoderTrainer(Trainer):
    """Adam on the mean squared error between images and what coding leaves of them.

    Args:
        network: images to codes and back.
        lr: learning rate.
    """

    def __init__(self, network: Autoencoder, lr: float) -> None:
        super().__init__(network)
        self.optimizers["adam"] = Adam(network.parameters(), lr)

    @override
    def learn(self, images: Tensor, labels: Tensor, generator: Generator) -> Losses:
        """Nothing is random, and no label asked for."""
        loss = functional.mse_loss(self.network(images), images)
        descend(self.optimizers["adam"], loss)
        return {"mse": loss.detach()}
