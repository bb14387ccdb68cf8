"""Network of LPIPS (Zhang et al. 2018), with weights that ``gleak weights`` downloads."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Literal

from gleak.core.errors import ArtifactError
from gleak.runtime.hub_weights import PublishedWeights, checkpoint_path, is_cached

if TYPE_CHECKING:
    from torch import Tensor, nn

Net = Literal["squeeze", "alex", "vgg"]


@dataclass(frozen=True)
class Backbone:
    """A network whose features LPIPS compares.

    Args:
        weights: torchvision's file of its ImageNet weights.
        smallest_side: side in pixels to which smaller images are enlarged.
    """

    weights: PublishedWeights
    smallest_side: int

    @property
    def file(self) -> str:
        """Name of the file in the cache of ``torch.hub``."""
        return self.weights.name


BACKBONES: Mapping[Net, Backbone] = {
    "squeeze": Backbone(
        PublishedWeights(
            name="squeezenet1_1-b8a52dc0.pth",
            size=4_958_839,
            digest="b8a52dc049b60e4b6ab68ad0df457362afab8b6304b2febdc1650a5dab4d7e7b",
        ),
        smallest_side=64,
    ),
    "alex": Backbone(
        PublishedWeights(
            name="alexnet-owt-7be5be79.pth",
            size=244_408_911,
            digest="7be5be791159472b1fbf3c69796f7cb30dca7ad8466c2df70058c37116cdee02",
        ),
        smallest_side=64,
    ),
    "vgg": Backbone(
        PublishedWeights(
            name="vgg16-397923af.pth",
            size=553_433_881,
            digest="397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0",
        ),
        smallest_side=16,
    ),
}
"""Backbones by the names that the package lpips gives them."""
SQUEEZE: Net = "squeeze"
CHANNELS = (1, 3)
"""Supported numbers of channels: grey and RGB."""


def fetch_command(net: Net) -> str:
    """Return the command that downloads the weights of a backbone."""
    return "gleak weights" if net == SQUEEZE else f"gleak weights --net {net}"


def perceptual_network(net: Net = SQUEEZE) -> nn.Module:
    """Return the network on the CPU: a backbone with linear weights (v0.1).

    Args:
        net: name of the backbone.

    Raises:
        ArtifactError: the backbone's weights are not in the cache of ``torch.hub``, or cannot be
            read; the message contains the command that downloads them.
    """
    path = checkpoint_path(BACKBONES[net].file)
    if not is_cached(path.name):
        raise ArtifactError(f"{path} is missing; download it with: {fetch_command(net)}")
    return _load(net, path)


@cache
def _load(net: Net, weights: Path) -> nn.Module:
    """Load the network; torchvision finds ``weights`` in its cache."""
    from gleak.runtime import torchvision_import  # noqa: F401, I001 - before lpips

    import lpips

    with warnings.catch_warnings():
        # lpips passes torchvision an argument that has been renamed since.
        warnings.filterwarnings("ignore", module="torchvision", category=UserWarning)
        try:
            network: nn.Module = lpips.LPIPS(net=net, verbose=False)
        except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
            raise ArtifactError(
                f"{weights} cannot be read ({error}); delete it, and run: {fetch_command(net)}"
            ) from None
    return network.requires_grad_(False)


def perceptual_distances(
    network: nn.Module, one: Tensor, other: Tensor, net: Net = SQUEEZE
) -> Tensor:
    """Compute LPIPS of pairs of images.

    Grey images are repeated to three channels. Sides shorter than the backbone's smallest are
    first enlarged bilinearly to it, since the backbone has no features for smaller images.

    Args:
        network: returned by `perceptual_network`.
        one: images of Shape (M, C, H, W) in [0, 1], C one of `CHANNELS`, on the network's device.
        other: same Shape, the other image of each pair.
        net: name of the network's backbone.

    Returns:
        Shape (M), 0 for identical images.
    """
    smallest = BACKBONES[net].smallest_side
    distances: Tensor = network(_prepared(one, smallest), _prepared(other, smallest))
    return distances.flatten()


def _prepared(images: Tensor, smallest: int) -> Tensor:
    """Convert images to network inputs: three channels in [-1, 1], sides not below a smallest."""
    from torch.nn.functional import interpolate

    height, width = (max(side, smallest) for side in images.shape[-2:])
    colour = images.expand(-1, 3, -1, -1)
    return 2 * interpolate(colour, size=(height, width), mode="bilinear") - 1
