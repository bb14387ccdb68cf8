"""Whether a sample was recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import MetricSpec, MetricUnavailable
from gleak.metrics.reconstruction.pixel_similarity import Mse

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("success_content")
class SuccessContent(MetricSpec):
    """1 for a sample whose mean squared error is below the threshold, else 0.

    The mean over samples is the success rate at that threshold.
    """

    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    threshold: float = parameter(1e-3, "mean squared error below which a sample counts", gt=0)

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), 0 or 1."""
        return np.asarray(Mse().measure(comparison) < self.threshold, dtype=np.float64)


@register("success_labels")
class SuccessLabels(MetricSpec):
    """1 for a true label that is among the reconstructed ones, counted with repeats, else 0."""

    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), 0 or 1."""
        equal = comparison.estimate_labels == comparison.truth_labels
        return np.asarray(equal, dtype=np.float64)

    def matched(self, comparison: Comparison) -> np.ndarray:
        """Which true labels have a reconstructed one beside them; Shape (V, N)."""
        return np.asarray(comparison.estimate_labels >= 0)


@register("categories")
class Categories(MetricSpec):
    """Share of a row's one-hot groups whose largest value stands where the truth has it.

    A group in which several values are the largest names no category and is not recovered.
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"tabular"})
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), in [0, 1].

        Raises:
            MetricUnavailable: no column of the table is one of a one-hot group.
        """
        groups = _one_hot_groups(comparison.feature_groups)
        if not groups:
            raise MetricUnavailable("the table has no categories: every column is a number")
        recovered = [
            _largest(comparison.truth[..., group]) == _largest(comparison.estimate[..., group])
            for group in groups
        ]
        return np.asarray(np.mean([same.all(axis=-1) for same in recovered], axis=0))


def _one_hot_groups(numbers: np.ndarray | None) -> list[np.ndarray]:
    """For each group of several columns, their positions."""
    if numbers is None:
        return []
    columns = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
    return [group for group in columns if len(group) > 1]


def _largest(values: np.ndarray) -> np.ndarray:
    """Which values are the largest of their row; of a row with NaN, none."""
    return np.asarray(values == values.max(axis=-1, keepdims=True))


@register("samples_found")
class SamplesFound(MetricSpec):
    """Share of a victim's batch that the attack found as samples of their own, and says so.

    Means of several samples do not count (``averaged_count`` of
    `gleak.artifacts.reconstruction.Reconstruction` is 1 for those that do), nor, where it says
    which label each has, samples of labels that the batch does not hold exactly once. How alike
    they are is for the metrics of samples to say.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    def applies(self, comparison: Comparison) -> bool:
        """Where an attack says of how many true samples each that it found is the mean."""
        found = comparison.reconstruction
        return (
            super().applies(comparison) and found is not None and found.averaged_count is not None
        )

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V), in [0, 1]."""
        found = comparison.reconstruction
        assert found is not None and found.averaged_count is not None
        alone = found.averaged_count == 1
        if found.paired:
            held = (found.labels[:, :, None] == comparison.truth_labels[:, None]).sum(2)
            alone = alone & (held == 1)
        return np.asarray(alone.sum(1) / comparison.truth_labels.shape[1])


@register("matching_rate")
class MatchingRate(MetricSpec):
    """Share of the pairs of updates, of one epoch and the next, that hold a sample in common."""

    source = "AGIC Table V"
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    @override
    def applies(self, comparison: Comparison) -> bool:
        """The attack pairs updates."""
        found = comparison.reconstruction
        return found is not None and found.rounds is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V), in [0, 1].

        Raises:
            MetricUnavailable: one round of each client was observed.
        """
        found = comparison.reconstruction
        assert found is not None and found.rounds is not None
        if comparison.rounds is None:
            raise MetricUnavailable("the clients were observed for one round, which has no partner")
        pairs = zip(comparison.rounds, found.rounds, strict=True)
        return np.array([_share_right(members, rounds) for members, rounds in pairs])


def _share_right(members: np.ndarray, rounds: np.ndarray) -> float:
    """Of one victim; Shapes (R, B) and (N, E)."""
    earlier, later = members[rounds[:, :-1]], members[rounds[:, 1:]]
    common = (earlier[..., :, None] == later[..., None, :]).any((-1, -2))
    return float(common.mean())
