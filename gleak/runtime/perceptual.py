"""Network of LPIPS (Zhang et al. 2018), with weights that ``gleak weights`` downloads."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

from gleak.core.errors import ArtifactError
from gleak.runtime.hub_weights import PublishedWeights, checkpoint_path

if TYPE_CHECKING:
    from torch import Tensor, nn

BACKBONE = PublishedWeights(
    name="squeezenet1_1-b8a52dc0.pth",
    size=4_959_277,
    digest="b54b6e9eee7d7ceeda397c80b4ee6bdc406d54ed2b7bd64e8978f44f3904bfb1",
)
WEIGHTS = BACKBONE.name
FETCH = "gleak weights"
"""Command that downloads the weights."""
SMALLEST_SIDE = 64
CHANNELS = (1, 3)
"""Supported numbers of channels: grey and RGB."""


def perceptual_network() -> nn.Module:
    """Return the network on the CPU: SqueezeNet 1.1 with linear weights (v0.1).

    Raises:
        ArtifactError: the backbone's weights are not in the cache of ``torch.hub``, or cannot be
            read; the message contains the command that downloads them.
    """
    path = checkpoint_path(WEIGHTS)
    if not path.is_file():
        raise ArtifactError(f"{path} is missing; download it with: {FETCH}")
    return _load(path)


@cache
def _load(weights: Path) -> nn.Module:
    """Load the network; torchvision finds ``weights`` in its cache."""
    from gleak.runtime import torchvision_import  # noqa: F401, I001 - before lpips

    import lpips

    with warnings.catch_warnings():
        # lpips passes torchvision an argument that has been renamed since.
        warnings.filterwarnings("ignore", module="torchvision", category=UserWarning)
        try:
            network: nn.Module = lpips.LPIPS(net="squeeze", verbose=False)
        except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
            raise ArtifactError(
                f"{weights} cannot be read ({error}); delete it, and run: {FETCH}"
            ) from None
    return network.requires_grad_(False)


def perceptual_distances(network: nn.Module, one: Tensor, other: Tensor) -> Tensor:
    """Compute LPIPS of pairs of images.

    Grey images are repeated to three channels. Sides shorter than 64 pixels are first enlarged
    bilinearly to 64, since the backbone has no features for smaller images.

    Args:
        network: returned by `perceptual_network`.
        one: images of Shape (M, C, H, W) in [0, 1], C one of `CHANNELS`, on the network's device.
        other: same Shape, the other image of each pair.

    Returns:
        Shape (M), 0 for identical images.
    """
    distances: Tensor = network(_prepared(one), _prepared(other))
    return distances.flatten()


def _prepared(images: Tensor) -> Tensor:
    """Convert images to network inputs: three channels in [-1, 1], sides of at least 64 pixels."""
    from torch.nn.functional import interpolate

    height, width = (max(side, SMALLEST_SIDE) for side in images.shape[-2:])
    colour = images.expand(-1, 3, -1, -1)
    return 2 * interpolate(colour, size=(height, width), mode="bilinear") - 1
