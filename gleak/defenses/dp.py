"""Differential privacy: an update of bounded length in Gaussian noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.artifacts.encodings import Dense, Encoded
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.lengths import lengths, scaled

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

    The noise is given by ``sigma``, its standard deviation, or by ``noise_multiplier``, which is
    that over ``norm``, as of DP-SGD and of federated averaging with client-level privacy. It
    depends on nothing that the client holds, so either gives the guarantee. The accountants take
    neighbours to be any two batches, which lie up to 2 norm apart: their multiplier is half of it.

    ``sigma`` and ``norm`` are in the unit of the values sent. A difference of weights is
    local_lr local_steps times as long as the mean gradient of the steps, so ``scaling=clip`` with
    the same ``norm`` leaves one and shortens the other; ``scaling=unit`` gives both one length, and
    the noise hides them alike. With ``unit=gradient`` both numbers are those of the gradient, and a
    difference of weights is given local_lr local_steps times as much, which changes neither their
    ratio nor epsilon.
    """

    source = "CPA section VI; McMahan et al. 2018 (clip, noise_multiplier)"

    sigma: float | None = parameter(
        1e-3,
        "standard deviation of the noise, in `unit`; none: noise_multiplier gives it",
        source="CPA Table III",
        ge=0,
    )
    norm: float = parameter(
        1.0, "length (L2) of the scaled update, in `unit`", source="CPA section VI", gt=0
    )
    scaling: Literal["unit", "clip"] = parameter(
        "unit", "clip: updates that are no longer than norm are left", source="CPA section VI"
    )
    noise_multiplier: float | None = parameter(
        None,
        "standard deviation of the noise, in units of norm; none: sigma gives it",
        source="McMahan et al. 2018",
        ge=0,
    )
    unit: Literal["value", "gradient"] = parameter(
        "value", "of sigma and norm: values as sent, or those of a gradient"
    )

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if (self.sigma is None) == (self.noise_multiplier is None):
            raise ValueError(
                "noise is given by sigma or by noise_multiplier, by exactly one of them: write "
                "sigma=DEVIATION, or sigma=none+noise_multiplier=MULTIPLIER"
            )
        return self

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise, in `unit`."""
        if self.sigma is not None:
            return self.sigma
        assert self.noise_multiplier is not None
        return self.noise_multiplier * self.norm

    @property
    @override
    def absolute(self) -> bool:
        """Where all updates get one length, theirs has no say."""
        return self.scaling == "clip" and self.unit == "value"

    @property
    @override
    def remedy(self) -> str:
        return "choose a smaller sigma or noise_multiplier, which costs privacy (epsilon_rdp)"

    @override
    def converted(self, factor: float) -> Self:
        if self.unit != "gradient":
            return self
        sigma = None if self.sigma is None else abs(factor) * self.sigma
        changed = {"sigma": sigma, "norm": abs(factor) * self.norm, "unit": "value"}
        return self.model_copy(update=changed)

    @override
    def at_sent_length(self, update: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.scaling == "clip":
            return update
        factors = self._factors(update)
        return {name: scaled(value, factors) for name, value in update.items()}

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        factors = self._factors(update)
        return {
            name: Dense(self._noisy(scaled(value, factors), generator).numpy()[None])
            for name, value in update.items()
        }

    def _factors(self, update: dict[str, Tensor]) -> Tensor:
        """What each round is multiplied by, in double precision for the smallest; Shape (R)."""
        import torch

        length = lengths(update)
        factors = torch.where(length > 0, self.norm / length, 1.0)
        return factors.clamp(max=1) if self.scaling == "clip" else factors

    def _noisy(self, value: Tensor, generator: Generator) -> Tensor:
        return value + self.deviation * value.new_empty(value.shape).normal_(generator=generator)
