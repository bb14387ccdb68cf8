"""Identification of true samples among others of their class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.knowledge.loading import fingerprints
from gleak.metrics.base import SHARE, Comparison, MetricSpec, MetricUnavailable
from gleak.runtime.seeding import stream

CANDIDATES = 100
SPLITS = ("test", "train")


class Identification(MetricSpec):
    """Base of the metrics that need other samples of the true samples' classes.

    These are drawn from both splits of the dataset, without those that equal one of the victim's in
    8 bits, by a stream of the run's seed, the victim and the sample. Nothing that an attack does
    changes them. Of a class with too few samples all are taken.
    """

    modalities = frozenset({"image"})
    needs_labels = True

    candidates: int = parameter(
        CANDIDATES, "images of a class, the true one included, among which it is sought", ge=2
    )
    rank: int = parameter(1, "place up to which the true image counts as identified", ge=1)

    def applies(self, comparison: Comparison) -> bool:
        """Return True if the dataset is known from which the true samples come."""
        return comparison.dataset is not None and super().applies(comparison)

    def others(self, comparison: Comparison) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        """Yield each true sample's victim and position, and its other candidates, (n, *shape).

        Raises:
            MetricUnavailable: a class has no other sample.
        """
        dataset, seed = comparison.dataset, comparison.private.seed or 0
        assert dataset is not None
        pools = {label: _members(dataset, label) for label in np.unique(comparison.truth_labels)}
        prints = _Fingerprints(dataset)
        for victim, labels in enumerate(comparison.truth_labels):
            own = fingerprints(comparison.truth[victim])
            for sample, label in enumerate(labels):
                order = stream(seed, "candidates", victim, sample).permutation(len(pools[label]))
                # some of the first may be the victim's own
                drawn = pools[label][order[: self.candidates - 1 + len(own)]]
                places = drawn[~np.isin(prints.at(drawn), own)][: self.candidates - 1]
                if not len(places):
                    raise MetricUnavailable(f"class {label} has no sample besides the victim's")
                yield (victim, sample), _samples(dataset, places)


@register("identified")
class Identified(Identification):
    """1 if a reconstruction is nearer to its true image than to others of the same class, else 0.

    The similarity of two images is the correlation of their values over all pixels and channels, so
    brightness and contrast do not count. The true image has the place 1 if no other candidate is as
    similar; equal similarities count against it. An image that does not depend on the true one has
    this with a probability of ``rank / candidates``, see `identified_by_chance`. In batches
    reconstructions are assigned to true samples by the least error, which favours images that
    differ from each other: compare with the blind control.
    """

    source = "ours"
    better = "higher"
    binary = True
    unmatched = 0.0
    limits = SHARE

    def measure(self, comparison: Comparison) -> np.ndarray:
        values = np.zeros(comparison.truth_labels.shape)
        for at, others in self.others(comparison):
            found = _standardised(comparison.estimate[at][None])[0]
            true = _standardised(comparison.truth[at][None])[0] @ found
            ahead = np.count_nonzero(_standardised(others) @ found >= true)
            values[at] = ahead < self.rank
        return values


@register("identified_by_chance")
class IdentifiedByChance(Identification):
    """Probability that `identified` is 1 for an image that does not depend on the true one.

    Mean over the victim's samples of ``rank`` / number of candidates, which is smaller than
    ``candidates`` if a class has fewer images.
    """

    source = "ours"
    per = "victim"
    limits = SHARE

    def measure(self, comparison: Comparison) -> np.ndarray:
        chances = np.zeros(comparison.truth_labels.shape)
        for at, others in self.others(comparison):
            chances[at] = min(1.0, self.rank / (1 + len(others)))
        return chances.mean(1)


def _members(dataset: Dataset, label: int) -> np.ndarray:
    """Return split (0: test, 1: train) and position of each sample of a class; Shape (M, 2)."""
    found = [np.flatnonzero(dataset.labels(split) == label) for split in SPLITS]
    return np.concatenate(
        [
            np.stack([np.full(len(positions), split), positions], axis=1)
            for split, positions in enumerate(found)
        ]
    )


class _Fingerprints:
    """Hashes of a dataset's samples, each computed when it is first needed."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._hashes = [np.zeros(len(dataset.labels(split)), np.uint64) for split in SPLITS]
        self._known = [np.zeros(len(hashes), bool) for hashes in self._hashes]

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the hashes of the samples at some places, Shape (n, 2) to (n)."""
        found = np.empty(len(places), np.uint64)
        for number, split in enumerate(SPLITS):
            hashes, known, own = self._hashes[number], self._known[number], places[:, 0] == number
            positions = places[own, 1]
            new = positions[~known[positions]]
            if len(new):
                hashes[new], known[new] = fingerprints(self._dataset.samples(split, new)), True
            found[own] = hashes[positions]
        return found


def _samples(dataset: Dataset, places: np.ndarray) -> np.ndarray:
    """Return the samples at some places, in their order; Shape (n, 2) to (n, *shape)."""
    samples = np.empty((len(places), *dataset.shape), dtype=np.float32)
    for number, split in enumerate(SPLITS):
        in_split = places[:, 0] == number
        samples[in_split] = dataset.samples(split, places[in_split, 1])
    return samples


def _standardised(images: np.ndarray) -> np.ndarray:
    """Return images without their mean and with norm 1, zero if constant; (n, *shape) to (n, F)."""
    flat = images.reshape(len(images), -1).astype(np.float64)
    flat -= flat.mean(1, keepdims=True)
    norms = np.linalg.norm(flat, axis=1, keepdims=True)
    return np.asarray(np.divide(flat, norms, out=np.zeros_like(flat), where=norms > 0))
