"""Whether updates of several epochs were paired rightly."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


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
