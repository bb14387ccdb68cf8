"""Recovered samples, labels, categories and pairings."""

from __future__ import annotations

import numpy as np

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import SHARE, Comparison, MetricSpec, MetricUnavailable
from gleak.metrics.reconstruction.pixel_similarity import Mse


@register("success_content")
class SuccessContent(MetricSpec):
    """1 for a sample whose mean squared error is below the threshold, else 0.

    The mean over samples is the success rate.
    """

    better = "higher"
    binary = True
    unmatched = 0.0
    limits = SHARE

    threshold: float = parameter(
        1e-3, "mean squared error below which a sample counts as recovered", gt=0
    )

    def measure(self, comparison: Comparison) -> np.ndarray:
        return (Mse().measure(comparison) < self.threshold).astype(np.float64)


@register("success_labels")
class SuccessLabels(MetricSpec):
    """1 for a true label that is among the reconstructed ones (with multiplicity), else 0."""

    better = "higher"
    binary = True
    unmatched = 0.0
    needs_labels = True
    limits = SHARE

    def measure(self, comparison: Comparison) -> np.ndarray:
        return (comparison.estimate_labels == comparison.truth_labels).astype(np.float64)

    def matched(self, comparison: Comparison) -> np.ndarray:
        return np.asarray(comparison.estimate_labels >= 0)


@register("categories")
class Categories(MetricSpec):
    """Share of a row's one-hot groups whose largest value is at the true position.

    A group with several largest values selects no category and is not recovered.
    """

    modalities = frozenset({"tabular"})
    better = "higher"
    unmatched = 0.0
    limits = SHARE

    def measure(self, comparison: Comparison) -> np.ndarray:
        numbers = comparison.private.feature_groups
        recovered = []
        for number in [] if numbers is None else np.unique(numbers):
            columns = np.flatnonzero(numbers == number)
            if len(columns) > 1:
                largest = [
                    values[..., columns] == values[..., columns].max(axis=-1, keepdims=True)
                    for values in (comparison.truth, comparison.estimate)
                ]
                recovered.append((largest[0] == largest[1]).all(axis=-1))
        if not recovered:
            raise MetricUnavailable("the table has no categorical columns")
        return np.asarray(np.mean(recovered, axis=0))


@register("samples_found")
class SamplesFound(MetricSpec):
    """Share of a victim's batch that the attack reports as recovered individually.

    Means of several samples do not count (``averaged_count`` of
    `gleak.artifacts.reconstruction.Reconstruction` must be 1), nor, if the attack assigns labels to
    samples, samples of labels that do not occur exactly once in the batch. Their similarity to the
    true samples is left to other metrics.
    """

    per = "victim"
    better = "higher"
    limits = SHARE

    def applies(self, comparison: Comparison) -> bool:
        """Return True if the attack reports how many true samples each reconstruction averages."""
        counts = getattr(comparison.reconstruction, "averaged_count", None)
        return super().applies(comparison) and counts is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        found = comparison.reconstruction
        assert found is not None and found.averaged_count is not None
        alone = found.averaged_count == 1
        if found.paired:
            occurrences = (found.labels[:, :, None] == comparison.truth_labels[:, None]).sum(2)
            alone = alone & (occurrences == 1)
        return np.asarray(alone.sum(1) / comparison.truth_labels.shape[1])


@register("matching_rate")
class MatchingRate(MetricSpec):
    """Share of pairs of updates of consecutive epochs that have a sample in common."""

    source = "AGIC Table V"
    per = "victim"
    better = "higher"
    limits = SHARE

    def applies(self, comparison: Comparison) -> bool:
        """Return True if the attack pairs updates."""
        return getattr(comparison.reconstruction, "rounds", None) is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        found = comparison.reconstruction
        assert found is not None and found.rounds is not None
        if comparison.private.rounds is None:
            raise MetricUnavailable(
                "the clients were observed for one round only, so there are no pairs"
            )
        shares = []
        for members, rounds in zip(comparison.private.rounds, found.rounds, strict=True):
            earlier, later = members[rounds[:, :-1]], members[rounds[:, 1:]]
            shares.append((earlier[..., :, None] == later[..., None, :]).any((-1, -2)).mean())
        return np.array(shares)
