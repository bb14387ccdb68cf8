"""Learned perceptual image patch similarity."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from typing_extensions import override

from gleak.core.errors import ArtifactError
from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable
from gleak.runtime.perceptual import CHANNELS, WEIGHTS, perceptual_distances, perceptual_network

if TYPE_CHECKING:
    from torch import nn

    from gleak.metrics.base import Comparison


@register("lpips")
class Lpips(MetricSpec):
    """Perceptual distance of each image: features of SqueezeNet 1.1, weighted linearly (v0.1).

    Grey images are repeated to three channels. Sides shorter than 64 pixels are first enlarged
    bilinearly to 64, since the backbone has no features for smaller images; values of small images
    are comparable only with each other. Weights are never downloaded (Zhang et al., "The
    unreasonable effectiveness of deep features", CVPR 2018).
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    weights: ClassVar[frozenset[str]] = frozenset({WEIGHTS})

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the distances; Shape (V, N), 0 for identical images.

        Raises:
            MetricUnavailable: the backbone's weights are not in the cache of ``torch.hub``, or the
                images have neither 1 nor 3 channels.
        """
        channels = comparison.truth.shape[2]
        if channels not in CHANNELS:
            raise MetricUnavailable(f"images have {channels} channels; supported: 1 or 3")
        try:
            network = perceptual_network()
        except ArtifactError as error:
            raise MetricUnavailable(str(error)) from None
        pairs = zip(comparison.estimate, comparison.truth, strict=True)
        return np.stack([_distances(network, estimate, truth) for estimate, truth in pairs])


def _distances(network: nn.Module, estimates: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """Compute the distances of one victim's samples; Shape (N)."""
    import torch

    with torch.inference_mode():
        pair = (torch.tensor(images).float() for images in (estimates, truths))
        distances = perceptual_distances(network, *pair)
    return np.asarray(distances.double().numpy())
