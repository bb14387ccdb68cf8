"""An attack of the tests: every sample is what its codec makes of zeros."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.attacks.observation import Observation
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.knowledge.autoencoder import Codec


@register("painting")
class Painting(AttackSpec):
    """Paints every sample alike."""

    codec: Annotated[Codec, nested("knowledge")] = parameter(Codec(size=64), "what it brings")

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """See `AttackSpec.reconstruct`."""
        import torch

        codes = torch.zeros(1, self.codec.size)
        image = observation.knowledge["codec"].decode(codes).numpy()
        shape = (observation.victims, observation.batch_size)
        return Reconstruction(
            inputs=np.tile(image, (*shape, 1, 1, 1)),
            labels=np.zeros(shape, int),
            converged=np.ones(observation.victims, bool),
        )
