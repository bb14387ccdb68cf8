"""Autoencoders: a codec of images, and a class-conditional generator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.knowledge.base import (
    GenerativeSpec,
    LayeredSpec,
    LayerShape,
    Losses,
    LossTrainer,
    Pyramid,
    Sides,
    Trainer,
    dense_shape,
    halved,
    pyramid,
    take_step,
)

if TYPE_CHECKING:
    from gleak.knowledge.networks import Autoencoder, Decoder

CODE_CHANNELS = 8
WIDEST = 4
"""Largest number of channels, in multiples of the width."""
SMALLEST_ERROR = 1e-6
PACE = 10.0
"""Learning rate of the classes' pictures, which are logits, relative to that of other weights."""


@register("codec")
class Codec(LayeredSpec):
    """Convolutional autoencoder with codes of length ``size``, trained on the squared error.

    A code is a small image of at most 8 channels: 8 x 32 x 32 for 8192 values and images of 128 x
    128 pixels, 8 x 8 x 8 for 512. If ``size`` does not fill the last channel, the rest of it is
    zero. Before training the code is the downscaled image, so that few steps suffice.
    """

    source = "ROG section 4.2; architecture ours"

    losses: ClassVar[tuple[str, ...]] = ("mse",)

    size: int = parameter(2048, "length of a code, d_z", source="ROG section 4.2", ge=1)

    def pyramid(self, shape: tuple[int, ...]) -> Pyramid:
        """Return the sizes of features of images, halved as often as the code allows."""
        sides, halvings = (shape[1], shape[2]), 0
        while CODE_CHANNELS * math.prod(halved(sides)) >= self.size and min(sides) > 1:
            sides, halvings = halved(sides), halvings + 1
        return pyramid(shape, self.width, WIDEST, halvings)

    def code_channels(self, shape: tuple[int, ...]) -> int:
        """Return the channels of a code, as a small image."""
        return -(-self.size // math.prod(self.pyramid(shape).sides[-1]))

    def check_shape(self, shape: tuple[int, ...]) -> None:
        if self.size >= math.prod(shape):
            raise IncompatibleError(
                f"knowledge {self}: codes of {self.size} values are not shorter than images of "
                f"{math.prod(shape)}; lower size"
            )

    def build(self, shape: tuple[int, ...], classes: int) -> Autoencoder:
        from gleak.knowledge.networks import Autoencoder

        return Autoencoder(self.pyramid(shape), self.code_channels(shape), self.size)

    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        return LossTrainer(
            self.build(shape, classes),
            self.lr,
            "mse",
            lambda outputs, images, labels: torch.nn.functional.mse_loss(outputs, images),
        )

    def layers(self, shape: tuple[int, ...], classes: int) -> list[LayerShape]:
        channels, sides, widths = sizes = self.pyramid(shape)
        code, deep = self.code_channels(shape), list(zip(sides, widths, strict=True))[1:]
        return [
            LayerShape(channels, widths[0], sides[0]),
            *(LayerShape(thin, wide, small) for (_, thin), (small, wide) in sizes.steps),
            *(LayerShape(wide, wide, small) for small, wide in deep for _ in range(4)),
            LayerShape(widths[-1], code, sides[-1]),
            LayerShape(code, widths[-1], sides[-1]),
            *(LayerShape(wide, thin, large) for (large, thin), (_, wide) in sizes.steps),
            LayerShape(widths[0], channels, sides[0]),
        ]


@register("generator")
class Generator(GenerativeSpec, LayeredSpec):
    """Decoder of a conditional variational autoencoder, from normal codes and classes to images.

    Unlike a generative adversarial network it has a single loss that decreases steadily, so that
    some hundred steps give (smooth) images of a class. The loss has no weight to choose: the
    variance of the pixels is the mean squared error of the step (Rybkin et al. 2021). The first
    values of a code are the offset of a coarse image's logits from those of its class, which are
    learned first; details follow later.
    """

    source = "ROG section 6; Kingma and Welling 2014, Sohn et al. 2015; architecture ours"

    losses: ClassVar[tuple[str, ...]] = ("mse", "kl")

    size: int = parameter(128, "length of a code", source="BigGAN (Brock et al. 2019)", ge=1)

    def pyramid(self, shape: tuple[int, ...]) -> Pyramid:
        """Return the sizes of features of images, halved to about four pixels."""
        return pyramid(shape, self.width, WIDEST, None)

    def coarse(self, shape: tuple[int, ...]) -> Sides:
        """Return height and width of the coarse image in the first values of a code."""
        sides = (shape[1], shape[2])
        while shape[0] * math.prod(sides) > self.size:
            sides = halved(sides)
        return sides

    def check_shape(self, shape: tuple[int, ...]) -> None:
        if self.size < shape[0]:
            raise IncompatibleError(
                f"knowledge {self}: codes of {self.size} values are too short for "
                f"{shape[0]} channels; raise size"
            )

    def build(self, shape: tuple[int, ...], classes: int) -> Decoder:
        from gleak.knowledge.networks import Decoder

        return Decoder(self.pyramid(shape), self.coarse(shape), self.size, classes)

    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        return DecoderTrainer(self.build(shape, classes), self.lr)

    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        pictures = classes * shape[0] * math.prod(self.coarse(shape))
        return super().parameters(shape, classes) + pictures

    def layers(self, shape: tuple[int, ...], classes: int) -> list[LayerShape]:
        """Return the layers of the decoder; the encoder's, as many, are not counted."""
        channels, sides, widths = sizes = self.pyramid(shape)
        return [
            dense_shape(self.size + classes, math.prod(sizes.last)),
            *(LayerShape(wide, thin, large) for (large, thin), (_, wide) in sizes.steps),
            LayerShape(widths[0], channels, sides[0]),
        ]


class DecoderTrainer(Trainer):
    """Trainer by Adam on the negative evidence lower bound, in nats per value.

    As the variance of the pixels is the mean squared error of the step, the negative log-likelihood
    is half its logarithm (Rybkin et al. 2021).
    """

    def __init__(self, network: Decoder, lr: float) -> None:
        self.network, self.encoder = network, network.encoder()
        super().__init__(network, encoder=self.encoder)
        layers = torch.nn.ModuleList([network.first, network.rest, self.encoder])
        groups: list[dict[str, Any]] = [
            {"params": [*layers.parameters()]},
            {"params": [*network.pictures.parameters()], "lr": PACE * lr},
        ]
        self.optimizers["adam"] = torch.optim.Adam(groups, lr)

    def learn(
        self, images: torch.Tensor, labels: torch.Tensor, generator: torch.Generator
    ) -> Losses:
        mean, log_variance = self.encoder(images, labels, self.network.pictures(labels))
        noise = torch.randn(mean.shape, generator=generator).to(mean)
        codes = mean + noise * (log_variance / 2).exp()
        error = torch.nn.functional.mse_loss(self.network.generate(codes, labels), images)
        kl = divergence(mean, log_variance).mean()
        likelihood = (error + SMALLEST_ERROR).log() / 2
        take_step(self.optimizers["adam"], likelihood + kl / images[0].numel())
        return {"mse": error.detach(), "kl": kl.detach()}


def divergence(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """Compute the KL divergence of codes from N(0, I); Shape (M), in nats."""
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
