"""The control that looks at no update."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.attacks.summary import AttackSummary
from gleak.core.registry import register
from gleak.observation import Observation
from gleak.runtime.seeding import stream


@register("blind")
class Blind(AttackSpec):
    """The mean training sample and random labels: what an attack that learnt something beats."""

    source = "docs/design.md, section 5"

    @property
    def grants(self) -> frozenset[str]:
        """The mean sample: knowledge of the population, none of the victim."""
        return frozenset({"mean_input"})

    @override
    def traits(self) -> AttackSummary:
        return AttackSummary(labels="at random")

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:
        mean = observation.granted["mean_input"].cpu().numpy()
        guesses = [
            stream(observation.seed, "blind labels", int(victim)).integers(
                observation.classes, size=observation.batch_size
            )
            for victim in observation.victim_ids
        ]
        return Reconstruction(
            inputs=np.repeat(mean[:, None], observation.batch_size, axis=1).clip(0, 1),
            labels=np.stack(guesses),
            converged=np.ones(observation.victims, dtype=bool),
        )
