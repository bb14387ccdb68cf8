"""Differential privacy: an update of bounded length in Gaussian noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gleak.artifacts.encodings import Dense, Encoded
from gleak.defenses.base import DefenseSpec, Memory
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("dp")
class DifferentialPrivacy(DefenseSpec):
    """The whole update is scaled to a length; then every value gets independent normal noise.

    All parameters together are one vector and every observed round is one of its own. CPA scales
    to unit length (section VI), which hides the length too; ``scaling=clip`` shortens longer
    updates alone, as federated averaging with client-level privacy does. An update of zeros stays
    as it is before the noise. Samples are not clipped one by one, so the noise hides the batch of
    a client as a whole; the metrics ``epsilon_rdp`` and ``epsilon_prv`` say how well.
    """

    source = "CPA section VI; McMahan et al. 2018 (clip)"

    sigma: float = knob(
        1e-3, "standard deviation of the noise", unit="weight", source="CPA Table III", ge=0
    )
    norm: float = knob(
        1.0, "length (L2) of the scaled update", unit="weight", source="CPA section VI", gt=0
    )
    scaling: Literal["unit", "clip"] = knob(
        "unit", "clip: updates that are no longer than norm are left", source="CPA section VI"
    )

    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """See `DefenseSpec.protect`."""
        factors = self._factors(update)
        return {
            name: Dense(self._noisy(_scaled(value, factors), generator).numpy()[None])
            for name, value in update.items()
        }

    def _factors(self, update: dict[str, Tensor]) -> Tensor:
        """What each round is multiplied by, in double precision for the smallest; Shape (R)."""
        import torch

        flat = [value.reshape(len(value), -1) for value in update.values()]
        lengths = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in flat]
        length = torch.linalg.vector_norm(torch.stack(lengths), dim=0)
        factors = torch.where(length > 0, self.norm / length, 1.0)
        return factors.clamp(max=1) if self.scaling == "clip" else factors

    def _noisy(self, value: Tensor, generator: Generator) -> Tensor:
        return value + self.sigma * value.new_empty(value.shape).normal_(generator=generator)


def _scaled(value: Tensor, factors: Tensor) -> Tensor:
    return (value * factors.reshape(-1, *[1] * (value.ndim - 1))).to(value.dtype)
