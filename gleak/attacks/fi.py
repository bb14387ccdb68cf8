"""Feature inversion of the true embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.inversion import FeatureInvertingAttack
from gleak.core.registry import register
from gleak.observation import Observation

if TYPE_CHECKING:
    from torch import nn


@register("fi")
class FI(FeatureInvertingAttack):
    """Images from their true embeddings, which are granted: what inversion alone can reach.

    No server knows them. This is the ceiling of `cpa_fi`, whose embeddings are estimates.
    """

    source = "CPA section IV-B, Eq. 12"

    def reads(self, model: nn.Module, input_shape: tuple[int, ...]) -> frozenset[str]:
        """What labels are read off; see `AttackSpec.reads`.

        Raises:
            IncompatibleError: the model has no classifier that is dense.
        """
        from gleak.attacks.first_layer import label_parameters

        return label_parameters(model, input_shape)

    @property
    def grants(self) -> frozenset[str]:
        """The embeddings, too."""
        return super().grants | {"embeddings"}

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """See `AttackSpec.reconstruct`.

        Raises:
            IncompatibleError: see `FeatureInvertingAttack.inversion`.
        """
        from gleak.matching.engine import solve

        embeddings = observation.granted["embeddings"]
        found = solve(self.inversion(observation, embeddings), observation)
        return replace(found, embeddings=embeddings.cpu().numpy())
