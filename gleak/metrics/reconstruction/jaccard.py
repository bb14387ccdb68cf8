"""Similarity of image content, compared by predicted tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison

TAGGER = "tagger"


@register("jaccard")
class Jaccard(MetricSpec):
    """Jaccard index of the tags of a true and a reconstructed image.

    The tagger is named by the attack's spec; an attack without one has no such score.
    """

    source = "ROG Eq. 21"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    @override
    def applies(self, comparison: Comparison) -> bool:
        """Return True if there is a tagger."""
        return super().applies(comparison) and TAGGER in comparison.evaluators

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the index; Shape (V, N), in [0, 1].

        Raises:
            MetricUnavailable: there is no tagger.
        """
        if TAGGER not in comparison.evaluators:
            raise MetricUnavailable(
                f"the attack's spec names no {TAGGER}; give it one of knowledge"
            )
        tagger = comparison.evaluators[TAGGER]
        pair = (_tags(tagger, images) for images in (comparison.truth, comparison.estimate))
        return shares(*pair).reshape(comparison.truth.shape[:2])


def _tags(tagger: Any, images: np.ndarray) -> np.ndarray:
    """Predict the tags of each image, without repeats; Shape (V N, number)."""

    flat = torch.from_numpy(images.reshape(-1, *images.shape[2:])).float()
    with torch.inference_mode():
        return np.asarray(tagger.tags(flat))


def shares(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Compute intersection over union, row by row (ROG Eq. 21).

    Args:
        one: distinct tags of each image; Shape (M, number).
        other: same, the number may differ.

    Returns:
        Shape (M), in [0, 1].
    """
    common = (one[:, :, None] == other[:, None, :]).sum((1, 2))
    return np.asarray(common / (one.shape[1] + other.shape[1] - common))
