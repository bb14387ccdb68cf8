"""Differential privacy of whole updates (DP), and of single samples at every step (Fed-CDP)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from gleak.artifacts.encodings import Encoded
from gleak.artifacts.protocol import Clipping, Loss
from gleak.clients.gradient_descent import LocalGradient
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import (
    DefenseSpec,
    GaussianMechanism,
    Memory,
    encode,
    scale_rounds,
    update_norms,
)
from gleak.models.batching import interacting_layer
from gleak.models.differentiation import sample_gradients
from gleak.models.parameters import Tensors
from gleak.models.stochastic import stochastic_training_mode
from gleak.models.tracing import describe_layer

MAX_VALUES = 2**24
"""Number of gradient values, over all samples, that are computed at once."""


@register("dp")
class DifferentialPrivacy(DefenseSpec):
    """The whole update is scaled or clipped to a norm, then Gaussian noise is added to every value.

    The norm is that of all parameters as one vector, for each observed round. CPA (section VI)
    scales to unit norm, which hides the norm too; ``scaling=clip`` only shortens longer updates, as
    federated averaging with client-level privacy does. An update of zeros is not scaled. Samples
    are not clipped one by one, so the noise hides the batch of a client as a whole; the metrics
    ``epsilon_rdp`` and ``epsilon_prv`` compute the guarantee, and ``reconstruction_bound`` what it
    means for attacks. The accountants take any two batches as neighbours, whose updates differ by
    up to 2 norm: their noise multiplier is half of ours.

    ``sigma`` and ``norm`` are in the unit of the values sent. A difference of weights is
    local_lr local_steps times as long as the mean gradient of the steps, so ``scaling=clip`` with
    the same ``norm`` may leave one unchanged and shorten the other; ``scaling=unit`` gives both the
    same norm, and the noise hides them alike. With ``unit=gradient`` both numbers are multiplied by
    local_lr local_steps for a difference of weights, which changes neither their ratio nor epsilon.
    """

    source = "CPA section VI; McMahan et al. 2018 (clip, noise_multiplier)"

    sigma: float | None = parameter(
        1e-3,
        "standard deviation of the noise, in `unit`; none: given by noise_multiplier",
        source="CPA Table III",
        ge=0,
    )
    norm: float = parameter(
        1.0, "L2 norm of the scaled update, in `unit`", source="CPA section VI", gt=0
    )
    scaling: Literal["unit", "clip"] = parameter(
        "unit", "clip: only updates longer than norm are scaled", source="CPA section VI"
    )
    noise_multiplier: float | None = parameter(
        None,
        "standard deviation of the noise, in units of norm; none: given by sigma",
        source="McMahan et al. 2018",
        ge=0,
    )
    unit: Literal["value", "gradient"] = parameter(
        "value", "unit of sigma and norm: values as sent, or values of a gradient"
    )

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if (self.sigma is None) == (self.noise_multiplier is None):
            raise ValueError(
                "give the noise by exactly one of sigma and noise_multiplier: write "
                "sigma=DEVIATION, or sigma=none+noise_multiplier=MULTIPLIER"
            )
        return self

    @property
    def clipping(self) -> Clipping:
        return "update"

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise, in `unit`."""
        if self.sigma is not None:
            return self.sigma
        assert self.noise_multiplier is not None
        return self.noise_multiplier * self.norm

    @property
    def mechanism(self) -> GaussianMechanism:
        return GaussianMechanism(self.norm, self.deviation)

    @property
    def scale_dependent(self) -> bool:
        return self.scaling == "clip" and self.unit == "value"

    @property
    def noiseless(self) -> Self:
        return self.model_copy(update={"sigma": 0.0, "noise_multiplier": None})

    @property
    def remedy(self) -> str:
        return "choose a smaller sigma or noise_multiplier, which costs privacy (epsilon_rdp)"

    def rescaled(self, factor: float) -> Self:
        if self.unit != "gradient":
            return self
        sigma = None if self.sigma is None else abs(factor) * self.sigma
        changed = {"sigma": sigma, "norm": abs(factor) * self.norm, "unit": "value"}
        return self.model_copy(update=changed)

    def at_sent_norm(self, update: Tensors) -> Tensors:
        if self.scaling == "clip":
            return update
        factors = self._factors(update)
        return {name: scale_rounds(value, factors) for name, value in update.items()}

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        factors = self._factors(update)
        sent: dict[str, Encoded] = {}
        for name, value in update.items():
            noise = value.new_empty(value.shape).normal_(generator=generator)
            sent[name] = encode(scale_rounds(value, factors) + self.deviation * noise)
        return sent

    def _factors(self, update: Tensors) -> torch.Tensor:
        """Compute the scaling factor of each round, in double precision; Shape (R)."""
        norms = update_norms(update)
        factors = torch.where(norms > 0, self.norm / norms, 1.0)
        return factors.clamp(max=1) if self.scaling == "clip" else factors


@register("fedcdp")
class FedCDP(DefenseSpec):
    """Sample gradients are clipped per layer, and noise is added to their mean (Fed-CDP).

    For each sample i and layer l, g_il becomes g_il / max(1, ||g_il|| / C) (ROG Equation 17), and
    a step is taken along (sum_i g_il + n_l) / B, with independent Gaussian n_l (Equation 18). A
    layer is a parameter: weight and bias are clipped separately, as in the code of Wei et al. and
    of ROG. A client with several local steps does this at each of them, as Wei et al. do.

    - With ``sigma``, n_l has the standard deviation sigma C, added once per mini-batch (Wei et
      al.'s code, and the noise multiplier of accountants): `gleak.metrics.epsilon` is a guarantee.
    - With ``snr``, each sample's clipped g_il is the signal, of power ||g_il||^2 over its number of
      values, and its noise is weaker by 10^(snr / 10); n_l is their sum, drawn at once. ROG's code
      takes one step only, whatever the local epochs (`fedsgd` here), takes the variance for the
      power, adds no noise to the first sample of a batch, and is set to C = 2, where the text has
      4. Noise that depends on the data guarantees nothing: epsilon is then, as in ROG, that of
      noise of the same strength, had it been fixed in advance.

    ``clip`` and the noise are in the unit of gradients, whatever is sent: a difference of weights
    results from the same steps. Every sample needs a gradient of its own, so layers that normalise
    by the mini-batch are refused.
    """

    source = "Wei et al. 2021; ROG Equations 17 and 18, section 5"
    takes_single_samples: ClassVar[bool] = True

    snr: float | None = parameter(
        0.0, "signal-to-noise ratio; none: given by sigma", unit="dB", source="ROG section 5"
    )
    sigma: float | None = parameter(
        None, "standard deviation of the noise, in units of clip; none: given by snr", ge=0
    )
    clip: float = parameter(
        4.0,
        "C: largest L2 norm of a sample's gradient of a layer",
        unit="gradient",
        source="ROG section 5; Wei et al. 2021",
        gt=0,
    )

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if (self.snr is None) == (self.sigma is None):
            raise ValueError(
                "give the noise by exactly one of snr and sigma: write snr=DECIBEL, or "
                "snr=none+sigma=MULTIPLIER"
            )
        return self

    @property
    def clipping(self) -> Clipping:
        return "parameter"

    @property
    def norm_if_clipped(self) -> float:
        return self.clip if self.snr is None else self.clip * math.hypot(1, 10 ** (-self.snr / 20))

    @property
    def data_dependent_noise(self) -> bool:
        return self.snr is not None

    @property
    def noiseless(self) -> Self:
        return self.model_copy(update={"sigma": 0.0, "snr": None})

    @property
    def remedy(self) -> str:
        return "choose a larger snr, or a smaller sigma, which costs privacy (epsilon_rdp)"

    def deviation(self, power: float, size: int) -> float:
        """Compute the standard deviation of n_l, for sum_i ||g_il||^2 and the size of the layer."""
        if self.sigma is not None:
            return self.sigma * self.clip
        assert self.snr is not None
        return math.sqrt(power / max(size, 1)) * 10 ** (-self.snr / 20)

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        mixing = interacting_layer(network, shape)
        if mixing is not None:
            raise IncompatibleError(
                f"defense {self}: {describe_layer(network, mixing)} computes with the whole "
                "mini-batch, so that no sample has a gradient of its own; choose a model without "
                "batch normalisation and the like"
            )

    def local_gradient(self) -> LocalGradient:
        return NoisyGradient(self)


class NoisyGradient(LocalGradient):
    """Mean of a mini-batch's clipped gradients, with noise added to their sum."""

    def __init__(self, defense: FedCDP) -> None:
        self.defense = defense
        self.noise_multipliers: list[float] = []

    def __call__(
        self,
        model: torch.nn.Module,
        parameters: Tensors,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        loss: Loss,
    ) -> tuple[torch.Tensor, Tensors]:
        """Process samples in chunks of `MAX_VALUES` gradient values; dropout masks each of them."""
        self.defense.check_network(model, tuple(inputs.shape[1:]))
        clip = self.defense.clip
        detached = {name: value.detach() for name, value in parameters.items()}
        sums = {name: torch.zeros_like(value) for name, value in detached.items()}
        powers, losses = dict.fromkeys(detached, 0.0), []
        size = max(1, MAX_VALUES // sum(value.numel() for value in detached.values()))
        with stochastic_training_mode(model, inputs):
            for x, y in zip(inputs.split(size), labels.split(size), strict=True):
                sample_losses, gradients = sample_gradients(model, detached, x, y, loss)
                losses.append(sample_losses)
                for name, gradient in gradients.items():
                    norms = torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1)
                    factors = 1 / (norms / clip).clamp(min=1)
                    sums[name] += torch.tensordot(factors, gradient, dims=1)
                    powers[name] += float((factors * norms).square().sum())
        deviations = {
            name: self.defense.deviation(powers[name], total.numel())
            for name, total in sums.items()
        }
        # the composition of Gaussian mechanisms, 1 / sqrt(sum_l (2C / s_l)^2): replacing a sample
        # changes the sum of a layer by at most 2C
        ratios = 2 * clip / torch.tensor([*deviations.values()], dtype=torch.float64)
        self.noise_multipliers.append(float(1 / torch.linalg.vector_norm(ratios)))
        noisy = {
            name: (total + deviations[name] * torch.randn(total.shape).to(total)) / len(labels)
            for name, total in sums.items()
        }
        return torch.cat(losses).mean(), noisy
