"""Images that an attack found, enhanced by a network that knows what images look like."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from gleak.artifacts.reconstruction import Reconstruction
from gleak.models.batching import memory_slices


def enhanced(found: Reconstruction, network: nn.Module) -> Reconstruction:
    """The same reconstruction with better images; what it took to find them stays.

    Args:
        found: of images.
        network: from images, Shape (M, C, H, W) in [0, 1], to as many.
    """
    device = next(network.parameters()).device
    images = torch.from_numpy(found.inputs).flatten(0, 1).to(device)
    with torch.no_grad():
        better = [network(images[some]) for some in memory_slices(len(images), images.shape[1:])]
    inputs = torch.cat(better).clamp(0, 1).cpu().numpy().reshape(found.inputs.shape)
    return replace(found, inputs=inputs)
