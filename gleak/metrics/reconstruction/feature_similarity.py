"""Similarity of features: perceptual distance, predicted tags, embeddings."""

from __future__ import annotations

import numpy as np

from gleak.core.errors import ArtifactError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import (
    NOT_NEGATIVE,
    SHARE,
    SIGNED,
    Comparison,
    MetricSpec,
    MetricUnavailable,
)
from gleak.metrics.reconstruction.assignment import UNASSIGNED, assign
from gleak.runtime import perceptual


@register("lpips")
class Lpips(MetricSpec):
    """Perceptual distance of each image: features of a network, weighted linearly (v0.1).

    Grey images are repeated to three channels. The features of AlexNet and SqueezeNet need sides of
    64 pixels, those of VGG 16: shorter ones are first enlarged bilinearly, and values of such
    images are comparable only with each other. Values of different networks are not comparable.
    Weights are never downloaded by a run (Zhang et al., "The unreasonable effectiveness of deep
    features", CVPR 2018).
    """

    modalities = frozenset({"image"})
    limits = NOT_NEGATIVE

    net: perceptual.Net = parameter(
        perceptual.SQUEEZE,
        "network of the features: SqueezeNet 1.1, AlexNet or VGG-16",
        source="ours: the smallest; alex in ROG's code, vgg in CPA's",
    )

    @property
    def weights(self) -> frozenset[str]:
        return frozenset({perceptual.BACKBONES[self.net].file})

    def measure(self, comparison: Comparison) -> np.ndarray:
        channels = comparison.truth.shape[2]
        if channels not in perceptual.CHANNELS:
            raise MetricUnavailable(f"images have {channels} channels; supported: 1 or 3")
        try:
            network = perceptual.perceptual_network(self.net)
        except ArtifactError as error:
            raise MetricUnavailable(str(error)) from None
        distances = []
        with torch.inference_mode():
            for pair in zip(comparison.estimate, comparison.truth, strict=True):
                estimate, truth = (torch.tensor(images).float() for images in pair)
                victim = perceptual.perceptual_distances(network, estimate, truth, net=self.net)
                distances.append(victim.double().numpy())
        return np.stack(distances)


TAGGER = "tagger"


@register("jaccard")
class Jaccard(MetricSpec):
    """Jaccard index of the tags of a true and a reconstructed image.

    The tagger is named by the attack's spec; an attack without one has no such score.
    """

    source = "ROG Eq. 21"
    modalities = frozenset({"image"})
    better = "higher"
    unmatched = 0.0
    limits = SHARE

    def applies(self, comparison: Comparison) -> bool:
        """Return True if there is a tagger."""
        return super().applies(comparison) and TAGGER in comparison.evaluators

    def measure(self, comparison: Comparison) -> np.ndarray:
        tags = []
        for images in (comparison.truth, comparison.estimate):
            flat = torch.from_numpy(images.reshape(-1, *images.shape[2:])).float()
            with torch.inference_mode():
                tags.append(np.asarray(comparison.evaluators[TAGGER].tags(flat)))
        return shares(*tags).reshape(comparison.truth.shape[:2])


def shares(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Compute intersection over union of the distinct tags of each image (ROG Eq. 21).

    Shapes (M, number), of which the number may differ, to (M).
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
    better = "higher"
    unmatched = 0.0
    limits = SIGNED

    def applies(self, comparison: Comparison) -> bool:
        """Return True if the model has embeddings and the attack reconstructs them."""
        pair = (comparison.private, comparison.reconstruction)
        known = all(getattr(artifact, "embeddings", None) is not None for artifact in pair)
        return super().applies(comparison) and known

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the cosines; Shape (V, N), in [-1, 1], NaN if unassigned."""
        assert comparison.private.embeddings is not None and comparison.reconstruction is not None
        assert comparison.reconstruction.embeddings is not None
        truth, found = comparison.private.embeddings, comparison.reconstruction.embeddings
        if truth.shape[-1] != found.shape[-1]:
            raise MetricUnavailable(
                f"true embeddings have {truth.shape[-1]} numbers each, the reconstructed ones "
                f"{found.shape[-1]}: they are inputs of different layers"
            )
        cosines = np.clip(_unit(truth) @ _unit(found).mT, -1, 1)
        order = np.stack([assign(-victim) for victim in cosines])
        victims, samples = np.nonzero(order != UNASSIGNED)
        best = np.full(order.shape, np.nan)
        best[victims, samples] = cosines[victims, samples, order[victims, samples]]
        return best

    def matched(self, comparison: Comparison) -> np.ndarray:
        return np.asarray(~np.isnan(self.measure(comparison)))


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Normalise vectors to length 1 in double precision; zero vectors are unchanged."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=-1, keepdims=True)
    return np.divide(exact, lengths, out=np.zeros_like(exact), where=lengths > 0)
