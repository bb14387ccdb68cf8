"""Variational block of PRECODE (Scheliga et al. 2022)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from gleak.models.sample_losses import Penalised

if TYPE_CHECKING:
    from gleak.models.base import PrecodeNetwork


class GaussianSample(Penalised):
    """Samples of Gaussians with given means and deviations, b = mu + sigma eps.

    Deviations are softplus(s) of given values s (ours: exponentials of log-variances would overflow
    earlier). In training mode, samples are drawn from torch's global random state; in evaluation
    mode b is the mean. The penalty is beta times KL(N(mu, sigma^2) || N(0, 1)) in nats, summed over
    the k values of a sample (Kingma and Welling 2014, Appendix B).

    Args:
        beta: weight of the divergence.
    """

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta, self.spread = beta, 1.0

    def forward(self, statistics: Tensor) -> Tensor:
        """Map means and values s of deviations, Shape (N, 2 k), to samples, Shape (N, k)."""
        means, deviations = _means_and_deviations(statistics)
        if not self.training:
            return means
        return means + self.spread * deviations * torch.randn_like(means)

    @override
    def penalty(self, inputs: Tensor) -> Tensor:
        means, deviations = _means_and_deviations(inputs)
        squares = means.square() + deviations.square()
        return self.beta * ((squares - 1) / 2 - deviations.log()).sum(-1)


def _means_and_deviations(statistics: Tensor) -> tuple[Tensor, Tensor]:
    means, values = statistics.chunk(2, dim=-1)
    return means, functional.softplus(values)


def variational_layers(model: PrecodeNetwork, features: int) -> list[nn.Module]:
    """Return the variational block of a model, from features to as many features, or no layer.

    Args:
        model: spec with the size of the bottleneck and the weight of the divergence.
        features: number of inputs of the last dense layer.
    """
    if not model.precode:
        return []
    parts: dict[str, nn.Module] = {
        "encoder": nn.Linear(features, 2 * model.precode),
        "sample": GaussianSample(model.beta),
        "decoder": nn.Linear(model.precode, features),
    }
    return [nn.Sequential(OrderedDict(parts))]
