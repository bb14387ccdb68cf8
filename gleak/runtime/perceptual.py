"""Network of LPIPS (Zhang et al. 2018), with weights that ``gleak weights`` downloads."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from gleak.core.lazy import torch
from gleak.runtime.hub_weights import checkpoint_path, read_tensors, read_weights

Net = Literal["squeeze", "alex", "vgg"]


class Backbone(NamedTuple):
    """A network whose features LPIPS compares: torchvision's file of its ImageNet weights.

    Images with a shorter side in pixels are enlarged to the smallest one.
    """

    file: str
    smallest_side: int


BACKBONES: Mapping[Net, Backbone] = {
    "squeeze": Backbone("squeezenet1_1-b8a52dc0.pth", smallest_side=64),
    "alex": Backbone("alexnet-owt-7be5be79.pth", smallest_side=64),
    "vgg": Backbone("vgg16-397923af.pth", smallest_side=16),
}
"""Backbones by the names that the package lpips gives them."""
SQUEEZE: Net = "squeeze"
CHANNELS = (1, 3)
"""Supported numbers of channels: grey and RGB."""


def perceptual_network(net: Net = SQUEEZE) -> torch.nn.Module:
    """Return the network on the CPU: a backbone with linear weights (v0.1).

    Raises:
        ArtifactError: the backbone's weights are not in the cache of ``torch.hub``, or are altered;
            the message contains the command that downloads them.
    """
    return _load(net, checkpoint_path(BACKBONES[net].file))


@cache
def _load(net: Net, path: Path) -> torch.nn.Module:
    """Build the network without weights, which lpips would unpickle; copy those of the files."""
    _, backbone = read_weights(path.name)  # before imports that would be in vain

    from gleak.runtime import torchvision_import  # noqa: F401, I001 - before lpips

    import lpips

    linear = Path(lpips.__file__).parent / "weights" / "v0.1" / f"{net}.pth"
    with linear.open("rb") as file:
        layers = read_tensors(linear, file)
    with warnings.catch_warnings():
        # lpips passes torchvision an argument that has been renamed since.
        warnings.filterwarnings("ignore", module="torchvision", category=UserWarning)
        network: torch.nn.Module = lpips.LPIPS(
            net=net, pretrained=False, pnet_rand=True, verbose=False
        )
    features = network.get_submodule("net")
    # The name slice1.0.weight is features.0.weight in torchvision's file.
    names = {name: f"features.{name.partition('.')[2]}" for name in features.state_dict()}
    features.load_state_dict({name: backbone[names[name]] for name in names})
    network.load_state_dict(layers, strict=False)  # it has each linear layer under two names
    return network.requires_grad_(False)


def perceptual_distances(
    network: torch.nn.Module, one: torch.Tensor, other: torch.Tensor, net: Net = SQUEEZE
) -> torch.Tensor:
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
    size = [max(side, BACKBONES[net].smallest_side) for side in one.shape[-2:]]
    interpolate = torch.nn.functional.interpolate
    pair = [
        2 * interpolate(images.expand(-1, 3, -1, -1), size=size, mode="bilinear") - 1
        for images in (one, other)
    ]
    distances: torch.Tensor = network(*pair)
    return distances.flatten()
