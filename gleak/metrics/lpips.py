"""Learned perceptual image patch similarity."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gleak.metrics.base import MetricSpec, MetricUnavailable
from gleak.registry import register
from gleak.runtime.checkpoints import checkpoint_path, fetch_command
from gleak.runtime.torchvision_ops import ensure_operators

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gleak.metrics.base import Comparison

WEIGHTS = "squeezenet1_1-b8a52dc0.pth"
FETCH = fetch_command(WEIGHTS)
SMALLEST_SIDE = 64


@register("lpips")
class Lpips(MetricSpec):
    """Perceptual distance of each image: features of SqueezeNet 1.1, weighted linearly (v0.1).

    Grey images are repeated to three channels. A side shorter than 64 pixels is first enlarged
    to 64 bilinearly, for the backbone has no features of smaller images; values of small images
    are therefore comparable with each other only. Weights are never downloaded (Zhang et al.,
    "The unreasonable effectiveness of deep features", CVPR 2018).
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), 0 for identical images.

        Raises:
            MetricUnavailable: the backbone's weights are not in torch's folder, or the images
                are neither grey nor in three colours.
        """
        channels = comparison.truth.shape[2]
        if channels not in (1, 3):
            raise MetricUnavailable(f"images have {channels} channels, and it takes 1 or 3")
        network = _network(find_weights())
        pairs = zip(comparison.estimate, comparison.truth, strict=True)
        return np.stack([_distances(network, estimate, truth) for estimate, truth in pairs])


def find_weights() -> Path:
    """The backbone's weights, where ``torch.hub`` keeps such files.

    Raises:
        MetricUnavailable: not there; the message holds the command that fetches them.
    """
    path = checkpoint_path(WEIGHTS)
    if not path.is_file():
        raise MetricUnavailable(f"{path} is missing; fetch it with: {FETCH}")
    return path


@cache
def _network(weights: Path) -> nn.Module:
    """The metric's network; ``weights`` stand where torchvision looks, so it loads that file."""
    ensure_operators()
    import lpips

    with warnings.catch_warnings():
        # lpips asks torchvision for its weights by an argument that has been renamed since.
        warnings.filterwarnings("ignore", module="torchvision", category=UserWarning)
        try:
            network: nn.Module = lpips.LPIPS(net="squeeze", verbose=False)
        except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
            raise MetricUnavailable(f"{weights} cannot be read ({error}); {FETCH}") from None
    return network


def _distances(network: nn.Module, estimates: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """Distances of one victim's samples; Shape (N)."""
    import torch

    with torch.inference_mode():
        distances = network(_prepared(torch.tensor(estimates)), _prepared(torch.tensor(truths)))
    return np.asarray(distances.flatten().double().numpy())


def _prepared(images: Tensor) -> Tensor:
    """Images as the network takes them: three channels in [-1, 1], no side below 64 pixels."""
    from torch.nn.functional import interpolate

    height, width = (max(side, SMALLEST_SIDE) for side in images.shape[-2:])
    colour = images.float().expand(-1, 3, -1, -1)
    return 2 * interpolate(colour, size=(height, width), mode="bilinear") - 1
