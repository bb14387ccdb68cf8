"""Similarity of features: perceptual distance, predicted tags, embeddings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.errors import ArtifactError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import Comparison, MetricSpec, MetricUnavailable
from gleak.metrics.reconstruction.assignment import UNASSIGNED, assign
from gleak.runtime.perceptual import (
    BACKBONES,
    CHANNELS,
    SQUEEZE,
    Net,
    perceptual_distances,
    perceptual_network,
)


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


@register("embedding_cosine")
class EmbeddingCosine(MetricSpec):
    """Cosine similarity of each true embedding and its assigned reconstruction.

    Embeddings are assigned independently of samples, with the greatest sum of cosines. Unlike in
    the authors' code no absolute value is taken: the sign is part of the result. The cosine of a
    zero vector is 0, as is that of a true embedding without an assigned one: nothing of it was
    recovered.
    """

    source = "CPA Figure 7"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    @override
    def applies(self, comparison: Comparison) -> bool:
        """Return True if the model has embeddings and the attack reconstructs them."""
        found = comparison.reconstruction
        known = comparison.private.embeddings is not None
        recovered = found is not None and found.embeddings is not None
        return super().applies(comparison) and known and recovered

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the cosines; Shape (V, N), in [-1, 1], NaN if unassigned.

        Raises:
            MetricUnavailable: the embeddings are of different layers.
        """
        pairs = zip(*_embeddings(comparison), strict=True)
        return np.stack([_best_cosines(true, found) for true, found in pairs])

    @override
    def matched(self, comparison: Comparison) -> np.ndarray:
        return np.asarray(~np.isnan(self.measure(comparison)))


def _embeddings(comparison: Comparison) -> tuple[np.ndarray, np.ndarray]:
    """Return true, Shape (V, N, E), and reconstructed embeddings, Shape (V, M, E)."""
    assert comparison.private.embeddings is not None and comparison.reconstruction is not None
    assert comparison.reconstruction.embeddings is not None
    truth, found = comparison.private.embeddings, comparison.reconstruction.embeddings
    if truth.shape[-1] != found.shape[-1]:
        raise MetricUnavailable(
            f"true embeddings have {truth.shape[-1]} numbers each, the reconstructed ones "
            f"{found.shape[-1]}: they are inputs of different layers"
        )
    return truth, found


def _best_cosines(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Compute the cosines of the pairs of one victim; Shape (N), NaN if unassigned."""
    cosines = np.clip(_unit(truth) @ _unit(found).T, -1, 1)
    order = assign(-cosines)
    pairs = np.flatnonzero(order != UNASSIGNED)
    best = np.full(len(truth), np.nan)
    best[pairs] = cosines[pairs, order[pairs]]
    return best


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Normalise vectors to length 1 in double precision; zero vectors are unchanged."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=-1, keepdims=True)
    return np.divide(exact, lengths, out=np.zeros_like(exact), where=lengths > 0)
