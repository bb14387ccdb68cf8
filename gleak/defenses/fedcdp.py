"""Fed-CDP: differential privacy of single samples, at every local step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.artifacts.encodings import Dense, Encoded
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory
from gleak.local_training.base import LocalGradient

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn


@register("fedcdp")
class FedCDP(DefenseSpec):
    """Gradients of samples are clipped layer by layer, and their mean gets noise (Fed-CDP).

    Of each sample i and layer l, g_il becomes g_il / max(1, ||g_il|| / C) (ROG Equation 17); a step
    goes along (sum_i g_il + n_l) / B, with independent normal n_l (Equation 18). A layer is a
    parameter: weight and bias are clipped each on its own, as in the codes of Wei et al. and of
    ROG. A client of several local steps does so at each of them, as Wei et al. do, so that what it
    sends needs nothing more; its loss and its dropout are those of a client without defence.

    The noise is given in one of two ways.

    - ``sigma``: n_l has the standard deviation sigma C, once for the mini-batch (Wei et al.'s code,
      and what accountants call a noise multiplier). The epsilon of `gleak.metrics.privacy` is a
      guarantee.
    - ``snr`` in decibel: each sample's clipped g_il is the signal, of power ||g_il||^2 over its
      number of values, and its noise is weaker by 10^(snr / 10). In ROG's code every sample gets
      noise of its own; n_l is their sum, drawn at once. That code takes the variance for the power,
      leaves the first sample of a batch as it is, and is set to C = 2, where the text has 4. Noise
      that follows the data guarantees nothing: epsilon is then that of noise of such strength, had
      it been fixed before. ROG gives its SNR such numbers too.

    ``clip`` and the noise are those of gradients, whatever is sent: a difference of weights is made
    of the same steps. Samples need a gradient of their own, so a layer that normalises by the
    mini-batch is refused.
    """

    source = "Wei et al. 2021; ROG Equations 17 and 18, section 5"

    snr: float | None = parameter(
        0.0, "signal over noise; none: sigma gives the noise", unit="dB", source="ROG section 5"
    )
    sigma: float | None = parameter(
        None, "standard deviation of the noise, in units of clip; none: snr gives it", ge=0
    )
    clip: float = parameter(
        4.0,
        "C: longest gradient (L2) of a layer and a sample",
        unit="gradient",
        source="ROG section 5; Wei et al. 2021",
        gt=0,
    )

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if (self.snr is None) == (self.sigma is None):
            raise ValueError(
                "noise is given by snr or by sigma, by exactly one of them: write snr=DECIBEL, or "
                "snr=none+sigma=MULTIPLIER"
            )
        return self

    @property
    @override
    def remedy(self) -> str:
        return "choose a larger snr, or a smaller sigma, which costs privacy (epsilon_rdp)"

    def deviation(self, power: float, size: int) -> float:
        """Standard deviation of n_l.

        Args:
            power: of the layer's clipped gradients, sum_i ||g_il||^2.
            size: how many values the layer has.
        """
        if self.sigma is not None:
            return self.sigma * self.clip
        assert self.snr is not None
        return math.sqrt(power / size) * 10 ** (-self.snr / 20)

    @override
    def check_network(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        """No layer that mixes the samples of a mini-batch."""
        from gleak.defenses.noisy_samples import check_layers

        check_layers(network, shape, self)

    @override
    def local_gradient(self) -> LocalGradient:
        from gleak.defenses.noisy_samples import NoisyGradient

        return NoisyGradient(self)

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """Nothing is left to do after the steps."""
        return {name: Dense(value.numpy()[None]) for name, value in update.items()}
