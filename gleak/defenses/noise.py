"""Additive Gaussian and Laplace noise."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Literal, Self

from gleak.artifacts.encodings import Encoded
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory, encode, per_round, update_norms
from gleak.models.parameters import Tensors


class NoiseSpec(DefenseSpec):
    """Base class of independent noise on every value; ``unit`` is the unit of ``std``.

    - ``value``: the values sent. A difference of weights is local_lr local_steps times as large as
      a gradient, so the same ``std`` hides it more, or less, than a gradient.
    - ``gradient``: the values of the mean gradient of the local steps. A difference of weights gets
      local_lr local_steps times that noise, so both are hidden alike, as with the units below.
    - ``deviation``: the standard deviation of each tensor in one round, so that the noise has the
      same relative strength in every layer and every model. A constant tensor gets no noise.
    - ``norm``: ``std`` is the L2 norm (root mean square) of the noise over that of the whole update
      of one round, independent of the scale of the update. With M values, each gets noise of
      standard deviation std ||update|| / sqrt(M); an update of zeros gets none.

    None of the units gives differential privacy, because the update is not bounded; with
    ``deviation`` and ``norm`` the noise even reveals the scale of the update. For differential
    privacy see `gleak.defenses.differential_privacy`.
    """

    std: float = parameter(
        1e-2, "standard deviation of the noise, in `unit`", source="CPL Table 8", ge=0
    )
    unit: Literal["value", "deviation", "norm", "gradient"] = parameter(
        "value",
        "of std: values as sent, each tensor's standard deviation, the update's L2 norm, or values "
        "of a gradient",
        source="CPL Table 8; MKOR Table 4 (deviation)",
    )

    @property
    def scale_dependent(self) -> bool:
        return self.unit == "value"

    @property
    def data_dependent_noise(self) -> bool:
        return self.unit in ("deviation", "norm")

    @property
    def noiseless(self) -> Self:
        return self.model_copy(update={"std": 0.0})

    @property
    def remedy(self) -> str:
        if self.data_dependent_noise:
            return "choose a smaller std"
        return "choose a smaller std, or give it relative to the update (unit=norm)"

    def rescaled(self, factor: float) -> Self:
        if self.unit != "gradient":
            return self
        return self.model_copy(update={"std": abs(factor) * self.std, "unit": "value"})

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        stds: dict[str, torch.Tensor | float] = dict.fromkeys(update, self.std)
        if self.unit == "norm":
            count = sum(value[0].numel() for value in update.values())
            std = self.std * update_norms(update) / math.sqrt(count)
            stds = {name: per_round(std.to(value.dtype), value) for name, value in update.items()}
        elif self.unit == "deviation":
            flat = {name: value.reshape(len(value), -1) for name, value in update.items()}
            stds = {
                name: self.std * per_round(rows.std(1, correction=0), update[name])
                for name, rows in flat.items()
            }
        return {
            name: encode(value + stds[name] * self.noise(value, generator))
            for name, value in update.items()
        }

    @abstractmethod
    def noise(self, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Draw noise of mean zero and standard deviation one, in the shape of a tensor."""


@register("gaussian")
class Gaussian(NoiseSpec):
    """Independent Gaussian noise on every value (CPL section 4.3).

    CPL gives "magnitudes of variance" 1e-4 to 1e-2. We read them as standard deviations: already
    with a variance of 1e-4 no method could do better than chance. MKOR's "normalized standard
    deviation" is ``unit=deviation`` (see `gleak.defenses.noise.NoiseSpec`). The update is not
    bounded, so no unit gives differential privacy (see `dp`).
    """

    source = "CPL section 4.3; MKOR Table 4"

    def noise(self, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return like.new_empty(like.shape).normal_(generator=generator)


@register("laplace")
class Laplace(NoiseSpec):
    """Independent Laplace noise on every value (CPL section 4.3).

    Specified by its standard deviation, like `gaussian`, so that equal numbers mean equal power;
    the scale of the distribution is the standard deviation over the square root of two. ``std`` has
    the same units as in `gaussian`; none of them gives differential privacy.
    """

    source = "CPL section 4.3"

    def noise(self, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        # the difference of two exponential variables has a Laplace distribution
        first, second = (
            like.new_empty(like.shape).exponential_(generator=generator) for _ in range(2)
        )
        return (first - second) / math.sqrt(2)
