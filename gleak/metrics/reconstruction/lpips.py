"""Learned perceptual image patch similarity."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from typing_extensions import override

from gleak.core.errors import ArtifactError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import MetricSpec, MetricUnavailable
from gleak.runtime.perceptual import (
    BACKBONES,
    CHANNELS,
    SQUEEZE,
    Net,
    perceptual_distances,
    perceptual_network,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gleak.metrics.base import Comparison


@register("lpips")
class Lpips(MetricSpec):
    """Perceptual distance of each image: features of a network, weighted linearly (v0.1).

    Grey images are repeated to three channels. The features of AlexNet and SqueezeNet need sides of
    64 pixels, those of VGG 16: shorter ones are first enlarged bilinearly, and values of such
    images are comparable only with each other. Values of different networks are not comparable.
    Weights are never downloaded by a run (Zhang et al., "The unreasonable effectiveness of deep
    features", CVPR 2018).
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})

    net: Net = parameter(
        SQUEEZE,
        "network of the features: SqueezeNet 1.1, AlexNet or VGG-16",
        source="ours: the smallest; alex in ROG's code, vgg in CPA's",
    )

    @property
    @override
    def weights(self) -> frozenset[str]:
        return frozenset({BACKBONES[self.net].file})

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
            network = perceptual_network(self.net)
        except ArtifactError as error:
            raise MetricUnavailable(str(error)) from None
        pairs = zip(comparison.estimate, comparison.truth, strict=True)
        distances = partial(perceptual_distances, network, net=self.net)
        return np.stack([_each(distances, estimate, truth) for estimate, truth in pairs])


def _each(
    distances: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    estimates: np.ndarray,
    truths: np.ndarray,
) -> np.ndarray:
    """Compute the distances of one victim's samples; Shape (N)."""

    with torch.inference_mode():
        pair = (torch.tensor(images).float() for images in (estimates, truths))
        found = distances(*pair)
    return np.asarray(found.double().numpy())
