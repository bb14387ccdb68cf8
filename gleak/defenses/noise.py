"""What defences that add noise to every value have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Literal, Self

from typing_extensions import override

from gleak.artifacts.encodings import Dense, Encoded
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.lengths import lengths, of_rounds

if TYPE_CHECKING:
    from torch import Generator, Tensor


class NoiseSpec(DefenseSpec):
    """Independent noise on every value; ``unit`` says what its standard deviation is given in.

    - ``value``: the values sent. A difference of weights is local_lr local_steps times as large as
      a gradient, so that the same ``std`` hides much more of it, or less.
    - ``gradient``: the values of the mean gradient of the local steps; a difference of weights gets
      local_lr local_steps times that, so that both are hidden alike.
    - ``deviation``: the standard deviation of each tensor, so that noise of the same ``std`` is as
      strong, for its tensor, in every layer and for every model. It is that of the tensor's values
      in one round, around their mean; values that are all equal get no noise.
    - ``norm``: ``std`` is the length (L2, root mean square) of the noise over that of the whole
      update of one round, the same whatever is sent. Of M values each gets noise of deviation
      std ||update|| / sqrt(M); an update of zeros gets none.

    No unit makes it differential privacy, since nothing bounds the update; with ``deviation`` and
    ``norm`` the noise even tells how large the update is. See `gleak.defenses.dp`.
    """

    std: float = parameter(
        1e-2, "standard deviation of the noise, in `unit`", source="CPL Table 8", ge=0
    )
    unit: Literal["value", "deviation", "norm", "gradient"] = parameter(
        "value",
        "of std: values as sent, each tensor's standard deviation, the update's length, or values "
        "of a gradient",
        source="CPL Table 8; MKOR Table 4 (deviation)",
    )

    @property
    @override
    def absolute(self) -> bool:
        return self.unit == "value"

    @property
    @override
    def remedy(self) -> str:
        if self.unit in ("deviation", "norm"):
            return "choose a smaller std"
        return "choose a smaller std, or give it relative to the update (unit=norm)"

    @override
    def converted(self, factor: float) -> Self:
        if self.unit != "gradient":
            return self
        return self.model_copy(update={"std": abs(factor) * self.std, "unit": "value"})

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        scales = self._scales(update)
        return {
            name: Dense((value + scales[name] * self.noise(value, generator)).numpy()[None])
            for name, value in update.items()
        }

    def _scales(self, update: dict[str, Tensor]) -> dict[str, Tensor | float]:
        """Standard deviation of the noise by parameter; a number, or Shape (R, 1, ...)."""
        if self.unit == "deviation":
            return {
                name: self.std
                * of_rounds(value.reshape(len(value), -1).std(1, correction=0), value)
                for name, value in update.items()
            }
        if self.unit == "norm":
            count = sum(value[0].numel() for value in update.values())
            even = self.std * lengths(update) / math.sqrt(count)
            return {name: of_rounds(even.to(value.dtype), value) for name, value in update.items()}
        return dict.fromkeys(update, self.std)

    @abstractmethod
    def noise(self, like: Tensor, generator: Generator) -> Tensor:
        """Noise of mean zero and deviation one, in the shape of a tensor."""
