"""Learned perceptual image patch similarity."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gleak.core.errors import ArtifactError
from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable
from gleak.runtime.perceptual import CHANNELS, perceptual_distances, perceptual_network

if TYPE_CHECKING:
    from torch import nn

    from gleak.metrics.base import Comparison


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
        if channels not in CHANNELS:
            raise MetricUnavailable(f"images have {channels} channels, and it takes 1 or 3")
        try:
            network = perceptual_network()
        except ArtifactError as error:
            raise MetricUnavailable(str(error)) from None
        pairs = zip(comparison.estimate, comparison.truth, strict=True)
        return np.stack([_distances(network, estimate, truth) for estimate, truth in pairs])


def _distances(network: nn.Module, estimates: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """Distances of one victim's samples; Shape (N)."""
    import torch

    with torch.inference_mode():
        pair = (torch.tensor(images).float() for images in (estimates, truths))
        distances = perceptual_distances(network, *pair)
    return np.asarray(distances.double().numpy())
