"""Gradient matching with the random numbers of variational layers among the unknowns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from gleak.attacks.matching.gradient_matching import GradientMatching, gradients_of
from gleak.core.lazy import torch
from gleak.models.stochastic import noise_sizes, with_noise_as_input

if TYPE_CHECKING:
    from gleak.attacks.matching.parts import Parts
    from gleak.attacks.observation import Observation


@dataclass(frozen=True)
class DrawnMatching(GradientMatching):
    """Gradient matching in samples and in what a client's variational layers drew for them.

    A client of PRECODE differentiates its loss at random representations b = mu + sigma eps. Its
    gradient determines eps as well as the samples: in a dense layer after the block each row is a
    multiple of b (Balunovic et al. 2022 recover it there; here it is searched with the samples, for
    batches too). Unknowns are the samples, joint labels if any, and eps, which starts from normally
    distributed values as it is.

    Args:
        draws: number of values of eps of one sample.
    """

    draws: int = 0

    @classmethod
    @override
    def of(cls, observation: Observation, parts: Parts) -> Self:
        network, shape = observation.model, observation.input_shape
        draws = sum(noise_sizes(network, shape))
        extended = replace(
            observation,
            model=with_noise_as_input(network, shape),
            input_shape=(math.prod(shape) + draws,),
            verified_methods={},
        )
        stated = super().of(observation, parts)
        return replace(stated, gradients=gradients_of(extended, parts), draws=draws)

    @property
    @override
    def unknowns(self) -> int:
        return super().unknowns + self.shape[0] * self.draws

    @override
    def network_inputs(self, points: torch.Tensor) -> torch.Tensor:
        """Return flat samples and their eps; Shape (V, N, P + K)."""
        noise = points[:, super().unknowns :].unflatten(1, (self.shape[0], self.draws))
        return torch.cat([self.inputs(points).flatten(2), noise], 2)
