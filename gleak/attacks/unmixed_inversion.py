"""Base class of attacks that unmix embeddings, then invert each of them to an image."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.inversion_attack import FeatureInvertingAttack
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing_attack import UnmixingAttack
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch

if TYPE_CHECKING:
    from gleak.attacks.matching.problem import Problem
    from gleak.attacks.unmixing.mixtures import Sources
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec

TWO_SIGNS = ("tanh", "leaky_relu")


class UnmixedInversion(FeatureInvertingAttack, UnmixingAttack):
    """Base class of attacks on convolutional networks: unmixing, then feature inversion.

    Embeddings follow a ReLU, which makes them nonnegative, so that their sign is known.
    """

    @override
    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if (activation := getattr(model, "activation", "relu")) in TWO_SIGNS:
            raise IncompatibleError(
                f"attack {self} needs embeddings that are not negative, but model {model} has "
                f"activation={activation}; use activation=relu"
            )

    def unmix_embeddings(self, observation: Observation) -> Sources:
        """Recover the embeddings of every victim with their sign; zero where not separated.

        Raises:
            IncompatibleError: see `UnmixingAttack.separate`.
        """
        from gleak.attacks.unmixing.mixtures import embeddings_by_sign

        found = self.separate(observation)
        values = embeddings_by_sign(found.values, found.factors).nan_to_num(nan=0.0)
        return replace(found, values=values)

    def problem(self, observation: Observation, embeddings: torch.Tensor) -> Problem:
        """Return the optimisation problem of the images, given embeddings of shape (V, N, E)."""
        return self.inversion(observation, embeddings)

    @override
    def rehearse(self, observation: Observation) -> None:
        """Unmix, then invert embeddings without values."""
        from gleak.attacks.matching.engine import solve

        super().rehearse(observation)
        weight = self.mixture(observation).weight
        embeddings = weight.new_empty(len(weight), observation.batch_size, weight.shape[2])
        solve(self.problem(observation, embeddings), observation)

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:
        return self.invert(observation, self.unmix_embeddings(observation).values)

    def invert(self, observation: Observation, embeddings: torch.Tensor) -> Reconstruction:
        """Invert embeddings to images; a victim without one of them has not converged.

        Args:
            observation: of the victims.
            embeddings: zero where not separated; Shape (V, N, E).
        """
        from gleak.attacks.matching.engine import solve

        assumed = replace(
            observation, protocol=replace(observation.protocol, batch_size=embeddings.shape[1])
        )
        found = solve(self.problem(assumed, embeddings), assumed)
        separated = embeddings.any(2).sum(1) >= observation.batch_size
        return replace(
            found,
            embeddings=embeddings.float().cpu().numpy(),
            converged=found.converged & separated.cpu().numpy(),
        )
