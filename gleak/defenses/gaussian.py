"""Additive Gaussian noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.artifacts.encodings import Dense, Encoded
from gleak.defenses.base import DefenseSpec, Memory
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("gaussian")
class Gaussian(DefenseSpec):
    """Independent normal noise on every value (CPL section 4.3).

    CPL gives "magnitudes of variance" 1e-4 to 1e-2. We read them as standard deviations: with
    variances as large as 1e-2 no method could do better than chance, at 1e-4 already.
    """

    std: float = knob(
        1e-2, "standard deviation of the noise", unit="weight", source="CPL Table 8", ge=0
    )

    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """See `DefenseSpec.protect`."""
        return {
            name: Dense(
                (
                    value + self.std * value.new_empty(value.shape).normal_(generator=generator)
                ).numpy()[None]
            )
            for name, value in update.items()
        }
