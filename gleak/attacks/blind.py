"""The control that looks at no update."""

from __future__ import annotations

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec, Observation
from gleak.attacks.traits import Traits
from gleak.registry import register
from gleak.runtime.seeding import stream


@register("blind")
class Blind(AttackSpec):
    """The mean training sample and random labels: what an attack that learnt something beats."""

    source = "docs/design.md, section 5"

    @property
    def grants(self) -> frozenset[str]:
        """The mean sample: knowledge of the population, none of the victim."""
        return frozenset({"mean_input"})

    def traits(self) -> Traits:
        """See `AttackSpec.traits`."""
        return Traits(labels="at random")

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """See `AttackSpec.reconstruct`."""
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
