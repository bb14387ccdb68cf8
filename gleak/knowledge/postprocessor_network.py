"""The generator and the discriminator of a postprocessor."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from gleak.knowledge.layers import conv, enlarge, silenced
from gleak.knowledge.postprocessor import Plan

LEAK = 0.2
PATCH_HALVINGS = 3
SMALLEST_PATCH = 4


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Convolution, instance normalisation, ReLU."""
    return nn.Sequential(conv(inputs, outputs, stride), nn.InstanceNorm2d(outputs), nn.ReLU())


class Down(nn.Sequential):
    """Features at half the resolution."""

    def __init__(self, thin: int, wide: int) -> None:
        super().__init__(block(thin, wide, stride=2), block(wide, wide))


class Up(nn.Module):
    """Features at the resolution of others, which are taken in beside them."""

    def __init__(self, wide: int, thin: int) -> None:
        super().__init__()
        self.narrow, self.join = block(wide, thin), block(2 * thin, thin)

    def forward(self, features: Tensor, beside: Tensor) -> Tensor:
        """Shape (M, wide, h, w) and (M, thin, H, W) to (M, thin, H, W)."""
        height, width = beside.shape[2:]
        enlarged = self.narrow(enlarge(features, (height, width)))
        joined: Tensor = self.join(torch.cat([enlarged, beside], dim=1))
        return joined


class UNet(nn.Module):
    """Images made better, by what is added to them.

    Args:
        plan: its sizes.

    Ronneberger et al. (2015), with instance normalisation; ROG Appendix A.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        narrow, levels = plan.widths[0], list(pairwise(plan.widths))
        self.first = nn.Sequential(block(plan.channels, narrow), block(narrow, narrow))
        self.down = nn.ModuleList(Down(thin, wide) for thin, wide in levels)
        self.up = nn.ModuleList(Up(wide, thin) for thin, wide in reversed(levels))
        self.last = silenced(conv(narrow, plan.channels))

    def enhance(self, images: Tensor) -> Tensor:
        """As `forward`, and not limited to [0, 1], so that no gradient is cut off in training."""
        features = [self.first(images)]
        for down in self.down:
            features.append(down(features[-1]))
        found = features.pop()
        for up in self.up:
            found = up(found, features.pop())
        return images + self.last(found)

    def forward(self, images: Tensor) -> Tensor:
        """Images as they may have been before they were degraded; Shape (M, C, H, W), [0, 1]."""
        return self.enhance(images).clamp(0, 1)


def patch_discriminator(plan: Plan) -> nn.Sequential:
    """Logits of being a real image, one for each patch; Shape (M, C, H, W) to (M, 1, h, w).

    PatchGAN (Isola et al. 2017): up to three halvings, without normalisation in the first layer.
    """
    halvings = sum(min(side) >= SMALLEST_PATCH for side in plan.sides[1:])
    channels = [plan.channels, *plan.widths[: min(halvings, PATCH_HALVINGS)]]
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(pairwise(channels)):
        layers.append(nn.Conv2d(inputs, outputs, 4, 2, padding=1))
        layers += [nn.InstanceNorm2d(outputs)] if place else []
        layers.append(nn.LeakyReLU(LEAK))
    return nn.Sequential(*layers, conv(channels[-1], 1))
