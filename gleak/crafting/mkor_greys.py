"""How crafted features answer to grey images, by which a server turns them into intensities.

What stands between an intensity and a feature (activations, batch normalisation, weights that were
left as they are, borders) is thus undone without being known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.models.chain import Chain
from gleak.models.layer_search import features_before

STRAIGHT = (nn.ReLU, nn.Identity, nn.LeakyReLU)
CURVED_LEVELS = 33
FAINTEST = 1e-6
"""Difference between black and white, in the largest feature, that floats of 32 bits can carry."""


@torch.no_grad()
def responses(
    network: nn.Module, chain: Chain, channels: Tensor, shape: Sequence[int]
) -> dict[str, np.ndarray]:
    """Features of grey images.

    Args:
        network: crafted.
        chain: its steps.
        channels: Shape (K), of the last convolution, that are read.
        shape: of an image.

    Returns:
        ``levels``, Shape (L), the intensities; ``responses``, Shape (L, K, values, values).

    Raises:
        IncompatibleError: black and white images look the same.
    """
    straight = all(isinstance(step.activation, STRAIGHT) for step in chain.convolutions)
    levels = torch.linspace(0, 1, 2 if straight else CURVED_LEVELS)
    features_of = features_before(network, chain.dense[0].name)
    greys = levels[:, None, None, None].expand(-1, *shape)
    found = torch.cat([features_of(grey) for grey in greys.split(1)])
    maps = found.unflatten(1, _maps(chain, found))[:, channels]
    if (maps[-1] - maps[0]).abs().max() <= FAINTEST * maps.abs().max():
        raise IncompatibleError(
            f"behind {len(chain.convolutions)} convolutions black and white look the same; choose "
            "a larger beta or an activation that does not flatten"
        )
    return {"levels": levels.numpy(), "responses": maps.numpy()}


def _maps(chain: Chain, features: Tensor) -> tuple[int, int, int]:
    count = chain.convolutions[-1].layer.out_channels
    side = round((features.shape[1] / count) ** 0.5)
    return count, side, side
