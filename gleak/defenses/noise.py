"""What defences that add noise to every value have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

from gleak.artifacts.encodings import Dense, Encoded
from gleak.defenses.base import DefenseSpec, Memory
from gleak.spec import knob

if TYPE_CHECKING:
    from torch import Generator, Tensor


class NoiseSpec(DefenseSpec):
    """Independent noise on every value, of equal strength or of that of the tensor it stands in.

    With ``unit=deviation`` noise of the same ``std`` is as strong, for its tensor, in every layer
    and for every model. The deviation is that of the tensor's values in one round, around their
    mean; values that are all equal get no noise.
    """

    std: float = knob(
        1e-2, "standard deviation of the noise, in `unit`", source="CPL Table 8", ge=0
    )
    unit: Literal["value", "deviation"] = knob(
        "value",
        "of std: that of the update's values, or the standard deviation of each tensor",
        source="CPL Table 8; MKOR Table 4 (deviation)",
    )

    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """See `DefenseSpec.protect`."""
        return {
            name: Dense((value + self._scale(value) * self.noise(value, generator)).numpy()[None])
            for name, value in update.items()
        }

    def _scale(self, value: Tensor) -> Tensor | float:
        """Standard deviation of the noise on one parameter; a number, or Shape (R, 1, ...)."""
        if self.unit == "value":
            return self.std
        deviations = value.reshape(len(value), -1).std(1, correction=0)
        return self.std * deviations.reshape(-1, *[1] * (value.ndim - 1))

    @abstractmethod
    def noise(self, like: Tensor, generator: Generator) -> Tensor:
        """Noise of mean zero and deviation one, in the shape of a tensor."""
