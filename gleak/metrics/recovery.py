"""Recovered samples, labels, categories and pairings."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import Comparison, MetricSpec, MetricUnavailable
from gleak.metrics.reconstruction.pixel_similarity import Mse


@register("success_content")
class SuccessContent(MetricSpec):
    """1 for a sample whose mean squared error is below the threshold, else 0.

    The mean over samples is the success rate at that threshold.
    """

    better: ClassVar[Literal["higher", "lower"]] = "higher"
    binary: ClassVar[bool] = True
    unmatched: ClassVar[float] = 0.0

    threshold: float = parameter(
        1e-3, "mean squared error below which a sample counts as recovered", gt=0
    )

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        return np.asarray(Mse().measure(comparison) < self.threshold, dtype=np.float64)


@register("success_labels")
class SuccessLabels(MetricSpec):
    """1 for a true label that is among the reconstructed ones (with multiplicity), else 0."""

    better: ClassVar[Literal["higher", "lower"]] = "higher"
    binary: ClassVar[bool] = True
    unmatched: ClassVar[float] = 0.0
    needs_labels: ClassVar[bool] = True

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        equal = comparison.estimate_labels == comparison.truth_labels
        return np.asarray(equal, dtype=np.float64)

    @override
    def matched(self, comparison: Comparison) -> np.ndarray:
        return np.asarray(comparison.estimate_labels >= 0)


@register("categories")
class Categories(MetricSpec):
    """Share of a row's one-hot groups whose largest value is at the true position.

    A group with several largest values selects no category and is not recovered.
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"tabular"})
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the shares; Shape (V, N), in [0, 1].

        Raises:
            MetricUnavailable: the table has no one-hot groups.
        """
        groups = _one_hot_groups(comparison.private.feature_groups)
        if not groups:
            raise MetricUnavailable("the table has no categorical columns")
        recovered = [
            _largest(comparison.truth[..., group]) == _largest(comparison.estimate[..., group])
            for group in groups
        ]
        return np.asarray(np.mean([same.all(axis=-1) for same in recovered], axis=0))


def _one_hot_groups(numbers: np.ndarray | None) -> list[np.ndarray]:
    """Return the column positions of each group of several columns."""
    if numbers is None:
        return []
    columns = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
    return [group for group in columns if len(group) > 1]


def _largest(values: np.ndarray) -> np.ndarray:
    """Return the mask of the largest values of each row; all False for rows with NaN."""
    return np.asarray(values == values.max(axis=-1, keepdims=True))


@register("samples_found")
class SamplesFound(MetricSpec):
    """Share of a victim's batch that the attack reports as recovered individually.

    Means of several samples do not count (``averaged_count`` of
    `gleak.artifacts.reconstruction.Reconstruction` must be 1), nor, if the attack assigns labels to
    samples, samples of labels that do not occur exactly once in the batch. Their similarity to the
    true samples is left to other metrics.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    @override
    def applies(self, comparison: Comparison) -> bool:
        """Return True if the attack reports how many true samples each reconstruction averages."""
        found = comparison.reconstruction
        return (
            super().applies(comparison) and found is not None and found.averaged_count is not None
        )

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the shares; Shape (V), in [0, 1]."""
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
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    @override
    def applies(self, comparison: Comparison) -> bool:
        """Return True if the attack pairs updates."""
        found = comparison.reconstruction
        return found is not None and found.rounds is not None

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the shares; Shape (V), in [0, 1].

        Raises:
            MetricUnavailable: one round of each client was observed.
        """
        found = comparison.reconstruction
        assert found is not None and found.rounds is not None
        if comparison.private.rounds is None:
            raise MetricUnavailable(
                "the clients were observed for one round only, so there are no pairs"
            )
        pairs = zip(comparison.private.rounds, found.rounds, strict=True)
        return np.array([_share_correct(members, rounds) for members, rounds in pairs])


def _share_correct(members: np.ndarray, rounds: np.ndarray) -> float:
    """Compute the share of one victim; Shapes (R, B) and (N, E)."""
    earlier, later = members[rounds[:, :-1]], members[rounds[:, 1:]]
    common = (earlier[..., :, None] == later[..., None, :]).any((-1, -2))
    return float(common.mean())
