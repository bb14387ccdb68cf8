"""Shares of a sum that servers recover that craft parameters, measured and expected."""

from __future__ import annotations

import numpy as np

from gleak.core.registry import parse, parse_at, register
from gleak.core.spec import parameter
from gleak.metrics.base import SHARE, Comparison, MetricSpec
from gleak.metrics.reconstruction.assignment import UNASSIGNED, gather, match_samples
from gleak.metrics.reconstruction.pixel_similarity import Ssim


@register("recovered")
class Recovered(MetricSpec):
    """Share of the images of an update that are recovered, by their structural similarity."""

    per = "victim"
    modalities = frozenset({"image"})
    better = "higher"
    limits = SHARE

    threshold: float = parameter(
        0.9, "structural similarity from which an image counts as recovered", gt=0, le=1
    )

    def measure(self, comparison: Comparison) -> np.ndarray:
        return self.are_recovered(comparison).mean(1)

    def are_recovered(self, comparison: Comparison) -> np.ndarray:
        """Return True for each recovered image; Shape (V, N)."""
        return np.asarray(Ssim().measure(comparison) >= self.threshold)


@register("attributed")
class Attributed(Recovered):
    """Share of the images that are recovered, and said to come from their own client.

    For attacks that tell the clients of a sum apart (`gleak.attacks.loki`). Of updates of one
    client it is `recovered`.
    """

    def applies(self, comparison: Comparison) -> bool:
        """Return True if the attack names the client of each sample."""
        named = getattr(comparison.reconstruction, "clients", None) is not None
        return super().applies(comparison) and named

    def measure(self, comparison: Comparison) -> np.ndarray:
        found, private = comparison.reconstruction, comparison.private
        assert found is not None and found.clients is not None
        clients = gather(found.clients, match_samples(private, found), UNASSIGNED)
        true = 0 if private.clients is None else private.clients
        return (self.are_recovered(comparison) & (clients == true)).mean(1)


@register("expected_share")
class ExpectedShare(MetricSpec):
    """Share of a sum's samples that the attack of a crafting server recovers by theory.

    It follows from the specs alone, for a sum without a defence
    (`gleak.crafting.base.CraftingSpec.expected_share`): for bins, the probability that no other
    sample is in the bin of a sample.
    """

    per = "victim"
    better = "higher"
    limits = SHARE

    def applies(self, comparison: Comparison) -> bool:
        """Return True if the attack is that of the crafting, and there is a theory."""
        return super().applies(comparison) and _expected(comparison) is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        return np.full(comparison.victims, _expected(comparison))


def _expected(comparison: Comparison) -> float | None:
    levels = comparison.levels
    if comparison.reconstruction is None or not levels.get("crafting") or not levels.get("attack"):
        return None
    attack = parse_at("attack", levels["attack"])
    if not getattr(attack, "crafting", None):
        return None
    crafting = parse("crafting", levels["crafting"])
    if attack.crafting != crafting.name:
        return None
    numbers = comparison.private.clients
    clients = 1 if numbers is None else int(numbers.max()) + 1
    samples = comparison.truth_labels.shape[1] // clients
    expected: float | None = crafting.expected_share(
        parse("model", levels["model"]), samples, clients
    )
    return expected
