"""Training of a generator: beside an encoder, which is not kept."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.optim import Adam
from typing_extensions import override

from gleak.knowledge.codec_network import DARKEST
from gleak.knowledge.generator import Plan
from gleak.knowledge.generator_network import Decoder, with_class
from gleak.knowledge.layers import conv, silenced
from gleak.knowledge.trainer import Losses, Trainer, descend

FIRST_LOG_VARIANCE = -4.0
"""Of a code given its image, before any training."""
SMALLEST_ERROR = 1e-6
PACE = 10.0
"""Of the classes' pictures, which are logits themselves, beside the weights of layers."""


class Encoder(nn.Module):
    """Which codes an image of a class may have: normal ones, with a mean and a variance each.

    The mean begins as what the image scaled down has beyond the picture of its class, so that the
    generator gives it back.

    Args:
        plan: sizes of the generator.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        down = [(nn.SiLU(), conv(thin, wide, stride=2)) for thin, wide in pairwise(plan.widths)]
        self.features = nn.Sequential(
            conv(plan.channels, plan.widths[0]),
            *(layer for layers in down for layer in layers),
            nn.SiLU(),
            nn.Flatten(),
        )
        inputs = math.prod(plan.features) + plan.classes
        self.last = silenced(nn.Linear(inputs, 2 * plan.size))

    def forward(self, images: Tensor, labels: Tensor, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of variances of codes.

        Args:
            images: Shape (M, C, H, W) in [0, 1].
            labels: Shape (M).
            pictures: of these classes, as the generator has them, flat.

        Returns:
            Shape (M, code size) each.
        """
        features = with_class(self.features(images), labels, self.plan.classes)
        shift, change = self.last(features).chunk(2, 1)
        small = functional.adaptive_avg_pool2d(images, self.plan.coarse).logit(DARKEST).flatten(1)
        beyond = functional.pad(small - pictures, (0, self.plan.size - small.shape[1]))
        return shift + beyond, change + FIRST_LOG_VARIANCE


class DecoderTrainer(Trainer):
    """Adam on the negative evidence lower bound, in nats a value.

    Args:
        network: the generator.
        lr: learning rate.

    Kingma and Welling (2014), conditional as in Sohn et al. (2015); the variance of the pixels is
    the squared error of the step, under which half its logarithm is the likelihood's share (Rybkin
    et al. 2021).
    """

    network: Decoder

    def __init__(self, network: Decoder, lr: float) -> None:
        super().__init__(network)
        self.encoder = Encoder(network.plan)
        layers = nn.ModuleList([network.first, network.rest, self.encoder])
        groups: list[dict[str, Any]] = [
            {"params": [*layers.parameters()]},
            {"params": [*network.pictures.parameters()], "lr": PACE * lr},
        ]
        self.optimizers["adam"] = Adam(groups, lr)

    @override
    def learn(self, images: Tensor, labels: Tensor, generator: Generator) -> Losses:
        """Codes are drawn."""
        mean, log_variance = self.encoder(images, labels, self.network.pictures(labels))
        noise = torch.randn(mean.shape, generator=generator).to(mean)
        codes = mean + noise * (log_variance / 2).exp()
        error = functional.mse_loss(self.network.generate(codes, labels), images)
        divergence = _divergence(mean, log_variance).mean()
        likelihood = (error + SMALLEST_ERROR).log() / 2
        descend(self.optimizers["adam"], likelihood + divergence / images[0].numel())
        return {"mse": error.detach(), "kl": divergence.detach()}


def _divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Of the codes of each image from independent standard normal ones; Shape (M), in nats."""
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
