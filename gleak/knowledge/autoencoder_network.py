"""Networks and trainers of the codec and of the generator (see `gleak.knowledge.autoencoder`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.optim import Adam
from typing_extensions import override

from gleak.knowledge.autoencoder import CodecPlan, GeneratorPlan
from gleak.knowledge.layer_shapes import Sides, conv3x3, zero_initialised
from gleak.knowledge.train_knowledge import Losses, Trainer, descend

DARKEST = 0.02
"""Intensities are clipped to this distance from 0 and 1 before their logits are computed."""
FIRST_LOG_VARIANCE = -4.0
"""Log variance of a code given its image, before training."""
SMALLEST_ERROR = 1e-6
PACE = 10.0
"""Learning rate of the classes' pictures, which are logits, relative to that of other weights."""


class Residual(nn.Module):
    """Two convolutions with an identity shortcut.

    Args:
        width: number of channels.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.SiLU(), conv3x3(width, width), nn.SiLU(), conv3x3(width, width)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Map Shape (M, width, H, W) to the same shape."""
        return features + self.inner(features)


class Autoencoder(nn.Module):
    """Network that encodes images and decodes codes.

    The encoder's output is added to the logits of the downscaled image, in the first channels of
    the code, and the decoder's output to the upscaled logits; both are zero before training.

    Args:
        plan: layer sizes.
        size: length of a code.
    """

    def __init__(self, plan: CodecPlan, size: int) -> None:
        super().__init__()
        self.plan, self.size = plan, size
        narrow, wide = plan.widths[0], plan.widths[-1]
        self.encoder = nn.Sequential(
            conv3x3(plan.channels, narrow),
            *_codec_down(plan.widths),
            nn.SiLU(),
            zero_initialised(conv3x3(wide, plan.code)),
        )
        self.decoder = nn.Sequential(
            conv3x3(plan.code, wide),
            *_codec_up(plan.widths, plan.sides),
            nn.SiLU(),
            zero_initialised(conv3x3(narrow, plan.channels)),
        )

    def encode(self, images: Tensor) -> Tensor:
        """Encode images; Shape (M, C, H, W) in [0, 1] to (M, size)."""
        small = functional.adaptive_avg_pool2d(images, self.plan.sides[-1]).logit(DARKEST)
        picture = self.encoder(images) + with_channels(small, self.plan.code)
        return picture.flatten(1)[:, : self.size]

    def decode(self, codes: Tensor) -> Tensor:
        """Decode codes; Shape (M, size) to (M, C, H, W) in [0, 1]."""
        shape = (self.plan.code, *self.plan.sides[-1])
        filled = functional.pad(codes, (0, math.prod(shape) - self.size))
        picture = filled.unflatten(1, shape)
        large = functional.interpolate(
            with_channels(picture, self.plan.channels), self.plan.sides[0]
        )
        images: Tensor = (self.decoder(picture) + large).sigmoid()
        return images

    def forward(self, images: Tensor) -> Tensor:
        """Encode and decode images; Shape (M, C, H, W) in [0, 1]."""
        return self.decode(self.encode(images))


def with_channels(picture: Tensor, channels: int) -> Tensor:
    """Return the first channels of a picture, padded with zeros."""
    missing = max(0, channels - picture.shape[1])
    return functional.pad(picture[:, :channels], (0, 0, 0, 0, 0, missing))


def _codec_down(widths: Sequence[int]) -> list[nn.Module]:
    pairs = [[conv3x3(thin, wide, stride=2), Residual(wide)] for thin, wide in pairwise(widths)]
    return [layer for pair in pairs for layer in pair]


def _codec_up(widths: Sequence[int], sides: Sequence[Sides]) -> list[nn.Module]:
    levels = reversed(list(zip(sides, pairwise(widths), strict=False)))
    blocks = [
        [Residual(wide), nn.Upsample(side), conv3x3(wide, thin)] for side, (thin, wide) in levels
    ]
    return [layer for layers in blocks for layer in layers]


class AutoencoderTrainer(Trainer):
    """Trainer by Adam on the mean squared error between images and their reconstructions.

    Args:
        network: the autoencoder.
        lr: learning rate.
    """

    def __init__(self, network: Autoencoder, lr: float) -> None:
        super().__init__(network)
        self.optimizers["adam"] = Adam(network.parameters(), lr)

    @override
    def learn(self, images: Tensor, labels: Tensor, generator: Generator) -> Losses:
        loss = functional.mse_loss(self.network(images), images)
        descend(self.optimizers["adam"], loss)
        return {"mse": loss.detach()}


class Decoder(nn.Module):
    """Decoder from codes and classes to images; a `gleak.knowledge.base.ImageGenerator`.

    The first values of a code and the picture of its class are added to give the logits of a coarse
    image, which is upscaled (nearest neighbour, whose gradient is deterministic on GPUs). The
    output of the layers, zero before training, is added to it. Before training all classes look
    alike.

    Args:
        plan: layer sizes.
    """

    def __init__(self, plan: GeneratorPlan) -> None:
        super().__init__()
        self.plan, self.code_size, self.classes = plan, plan.size, plan.classes
        self.pictures = nn.Embedding(plan.classes, math.prod(plan.picture))
        nn.init.zeros_(self.pictures.weight)
        self.first = nn.Linear(plan.size + plan.classes, math.prod(plan.features))
        self.rest = nn.Sequential(
            *_generator_up(plan),
            nn.SiLU(),
            zero_initialised(conv3x3(plan.widths[0], plan.channels)),
        )

    def generate(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Generate images; see `gleak.knowledge.base.ImageGenerator.generate`."""
        features = self.first(with_class(codes, labels, self.classes))
        pictures: Tensor = self.pictures(labels)
        coarse = (pictures + codes[:, : pictures.shape[1]]).unflatten(1, self.plan.picture)
        large = functional.interpolate(coarse, self.plan.sides[0])
        images: Tensor = (self.rest(features.unflatten(1, self.plan.features)) + large).sigmoid()
        return images


def with_class(values: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Concatenate flat values and one-hot labels; Shape (M, d + classes)."""
    return torch.cat([values, functional.one_hot(labels, classes).to(values.dtype)], 1)


def _generator_up(plan: GeneratorPlan) -> list[nn.Module]:
    levels = reversed(list(zip(plan.sides, pairwise(plan.widths), strict=False)))
    blocks = [[nn.SiLU(), nn.Upsample(side), conv3x3(wide, thin)] for side, (thin, wide) in levels]
    return [layer for layers in blocks for layer in layers]


class Encoder(nn.Module):
    """Encoder that returns a normal distribution of codes for each image and class.

    Before training the mean is the difference between the downscaled image and the picture of its
    class, so that the decoder reconstructs the downscaled image.

    Args:
        plan: layer sizes of the generator.
    """

    def __init__(self, plan: GeneratorPlan) -> None:
        super().__init__()
        self.plan = plan
        down = [(nn.SiLU(), conv3x3(thin, wide, stride=2)) for thin, wide in pairwise(plan.widths)]
        self.features = nn.Sequential(
            conv3x3(plan.channels, plan.widths[0]),
            *(layer for layers in down for layer in layers),
            nn.SiLU(),
            nn.Flatten(),
        )
        inputs = math.prod(plan.features) + plan.classes
        self.last = zero_initialised(nn.Linear(inputs, 2 * plan.size))

    def forward(self, images: Tensor, labels: Tensor, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Compute means and log variances of codes.

        Args:
            images: Shape (M, C, H, W) in [0, 1].
            labels: Shape (M).
            pictures: of these classes, in the decoder, flat.

        Returns:
            Shape (M, code size) each.
        """
        features = with_class(self.features(images), labels, self.plan.classes)
        shift, change = self.last(features).chunk(2, 1)
        small = functional.adaptive_avg_pool2d(images, self.plan.coarse).logit(DARKEST).flatten(1)
        beyond = functional.pad(small - pictures, (0, self.plan.size - small.shape[1]))
        return shift + beyond, change + FIRST_LOG_VARIANCE


class DecoderTrainer(Trainer):
    """Trainer by Adam on the negative evidence lower bound, in nats per value.

    Args:
        network: the decoder.
        lr: learning rate.

    Kingma and Welling (2014), conditional as in Sohn et al. (2015). The variance of the pixels is
    the mean squared error of the step, so that the negative log-likelihood is half its logarithm
    (Rybkin et al. 2021).
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
        mean, log_variance = self.encoder(images, labels, self.network.pictures(labels))
        noise = torch.randn(mean.shape, generator=generator).to(mean)
        codes = mean + noise * (log_variance / 2).exp()
        error = functional.mse_loss(self.network.generate(codes, labels), images)
        divergence = _divergence(mean, log_variance).mean()
        likelihood = (error + SMALLEST_ERROR).log() / 2
        descend(self.optimizers["adam"], likelihood + divergence / images[0].numel())
        return {"mse": error.detach(), "kl": divergence.detach()}


def _divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Compute the KL divergence of codes from N(0, I); Shape (M), in nats."""
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
