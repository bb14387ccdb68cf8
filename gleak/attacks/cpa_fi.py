"""The cocktail party attack on a convolutional network: unmixing, then feature inversion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.embedding_unmixing import EmbeddingUnmixing
from gleak.attacks.inversion import FeatureInvertingAttack
from gleak.attacks.summary import AttackSummary
from gleak.core.registry import register
from gleak.observation import Observation

if TYPE_CHECKING:
    from torch import Tensor

    from gleak.matching.problem import Problem


@register("cpa_fi")
class CPAFI(FeatureInvertingAttack, EmbeddingUnmixing):
    """Embeddings unmixed from the first dense layer's gradient, and images that have them.

    ``iterations``, ``lr`` and ``tolerance`` are the unmixing's; CPA gives one number of rounds for
    both steps. Besides that layer's gradient only the classifier's is read, for the labels. Where
    an embedding could not be told apart the image is of no embedding, so smooth, and the victim has
    not converged.
    """

    source = "CPA section IV, Eq. 11 and 12"
    budget_fields: ClassVar[frozenset[str]] = (
        EmbeddingUnmixing.budget_fields | FeatureInvertingAttack.budget_fields
    )

    @override
    def traits(self) -> AttackSummary:
        return EmbeddingUnmixing.traits(self).then(FeatureInvertingAttack.traits(self))

    def problem(self, observation: Observation, embeddings: Tensor) -> Problem:
        """What the images are to minimise, given their embeddings; Shape (V, N, E)."""
        return self.inversion(observation, embeddings)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """See `AttackSpec.reconstruct`.

        Raises:
            IncompatibleError: the network's first dense layer is given no features of the images,
                or has
                fewer neurons than there are samples.
        """
        from gleak.matching.engine import solve

        embeddings = self.unmix_embeddings(observation).values
        believed = replace(observation, batch_size=embeddings.shape[1])
        found = solve(self.problem(believed, embeddings), believed)
        told_apart = embeddings.any(2).sum(1) >= observation.batch_size
        return replace(
            found,
            embeddings=embeddings.float().cpu().numpy(),
            converged=found.converged & told_apart.cpu().numpy(),
        )
