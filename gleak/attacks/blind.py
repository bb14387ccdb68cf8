"""Baseline that ignores the update."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attack_summary import AttackSummary
from gleak.attacks.base import AttackSpec
from gleak.core.registry import register
from gleak.observation import Observation
from gleak.runtime.seeding import stream


@register("blind")
class Blind(AttackSpec):
    """The mean training sample with random labels: the baseline without any update."""

    source = "docs/design.md, section 5"

    @property
    @override
    def grants(self) -> frozenset[str]:
        """The mean sample, which describes the population and no single victim."""
        return frozenset({"mean_input"})

    @override
    def traits(self) -> AttackSummary:
        return AttackSummary(labels="at random")

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:
        mean = observation.granted["mean_input"].cpu().numpy()
        labels = [
            stream(observation.seed, "blind labels", int(victim)).integers(
                observation.classes, size=observation.batch_size
            )
            for victim in observation.victim_ids
        ]
        return Reconstruction(
            inputs=np.repeat(mean[:, None], observation.batch_size, axis=1).clip(0, 1),
            labels=np.stack(labels),
            converged=np.ones(observation.victims, dtype=bool),
        )
