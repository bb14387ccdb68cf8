"""Networks of the codec, the generator, the postprocessor, the denoiser, the tagger and BigGAN.

They are subclasses of `torch.nn.Module`, so this module loads torch: specs import it in functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import spectral_norm

from gleak.data.natural_images import ImagePrior
from gleak.knowledge.base import LayerShape, Pyramid, Sides, conv3x3, zero_initialised

DARKEST = 0.02
"""Intensities are clipped to this distance from 0 and 1 before their logits are computed."""
FIRST_LOG_VARIANCE = -4.0
"""Log variance of a code given its image, before training."""
EPSILON = 1e-4
STATISTICS = 51
"""Number of truncations between 0 and 1 with stored statistics of activations."""
COLOURS = 3
CONTRAST = 0.25
"""Typical standard deviation of intensities in an image."""
LEVEL = 4.0
"""Divisor of the logarithm of the noise, as an input of the denoiser."""


class ResidualConvolutions(nn.Module):
    """Two convolutions with an identity shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.SiLU(), conv3x3(width, width), nn.SiLU(), conv3x3(width, width)
        )

    def forward(self, features: Tensor) -> Tensor:
        return features + self.inner(features)


class Autoencoder(nn.Module):
    """Network that encodes images and decodes codes, small images of ``channels`` as vectors.

    The encoder's output is added to the logits of the downscaled image, in the first channels of
    the code, and the decoder's output to the upscaled logits; both are zero before training.
    """

    def __init__(self, pyramid: Pyramid, channels: int, size: int) -> None:
        super().__init__()
        self.pyramid, self.channels, self.size = pyramid, channels, size
        narrow, widest = pyramid.widths[0], pyramid.widths[-1]
        down: list[nn.Module] = [conv3x3(pyramid.channels, narrow)]
        for (_, thin), (_, wide) in pyramid.steps:
            down += [conv3x3(thin, wide, stride=2), ResidualConvolutions(wide)]
        down += [nn.SiLU(), zero_initialised(conv3x3(widest, channels))]
        self.encoder = nn.Sequential(*down)
        up: list[nn.Module] = [conv3x3(channels, widest)]
        for (side, thin), (_, wide) in reversed(pyramid.steps):
            up += [ResidualConvolutions(wide), nn.Upsample(side), conv3x3(wide, thin)]
        up += [nn.SiLU(), zero_initialised(conv3x3(narrow, pyramid.channels))]
        self.decoder = nn.Sequential(*up)

    def encode(self, images: Tensor) -> Tensor:
        small = functional.adaptive_avg_pool2d(images, self.pyramid.sides[-1]).logit(DARKEST)
        picture = self.encoder(images) + with_channels(small, self.channels)
        return picture.flatten(1)[:, : self.size]

    def decode(self, codes: Tensor) -> Tensor:
        shape = (self.channels, *self.pyramid.sides[-1])
        picture = functional.pad(codes, (0, math.prod(shape) - self.size)).unflatten(1, shape)
        small = with_channels(picture, self.pyramid.channels)
        large = functional.interpolate(small, self.pyramid.sides[0])
        images: Tensor = (self.decoder(picture) + large).sigmoid()
        return images

    def forward(self, images: Tensor) -> Tensor:
        return self.decode(self.encode(images))


def with_channels(picture: Tensor, channels: int) -> Tensor:
    missing = max(0, channels - picture.shape[1])
    return functional.pad(picture[:, :channels], (0, 0, 0, 0, 0, missing))


class Decoder(nn.Module):
    """Decoder from codes and classes to images; a `gleak.knowledge.base.ImageGenerator`.

    The first values of a code and the picture of its class are added to give the logits of a coarse
    image of sides ``coarse``, which is upscaled (nearest neighbour, whose gradient is deterministic
    on GPUs). The output of the layers, zero before training, is added to it. Before training all
    classes look alike.
    """

    def __init__(self, pyramid: Pyramid, coarse: Sides, size: int, classes: int) -> None:
        super().__init__()
        self.pyramid, self.coarse = pyramid, coarse
        self.code_size, self.classes = size, classes
        self.pictures = nn.Embedding(classes, pyramid.channels * math.prod(coarse))
        nn.init.zeros_(self.pictures.weight)
        self.first = nn.Linear(size + classes, math.prod(pyramid.last))
        up: list[nn.Module] = []
        for (side, thin), (_, wide) in reversed(pyramid.steps):
            up += [nn.SiLU(), nn.Upsample(side), conv3x3(wide, thin)]
        up += [nn.SiLU(), zero_initialised(conv3x3(pyramid.widths[0], pyramid.channels))]
        self.rest = nn.Sequential(*up)

    def generate(self, codes: Tensor, labels: Tensor) -> Tensor:
        features = self.first(with_class(codes, labels, self.classes))
        pictures: Tensor = self.pictures(labels)
        coarse = (pictures + codes[:, : pictures.shape[1]]).unflatten(1, (-1, *self.coarse))
        large = functional.interpolate(coarse, self.pyramid.sides[0])
        images: Tensor = (self.rest(features.unflatten(1, self.pyramid.last)) + large).sigmoid()
        return images

    def encoder(self) -> Encoder:
        return Encoder(self.pyramid, self.coarse, self.code_size, self.classes)


def with_class(values: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Concatenate flat values and one-hot labels; Shape (M, d + classes)."""
    return torch.cat([values, functional.one_hot(labels, classes).to(values.dtype)], 1)


class Encoder(nn.Module):
    """Encoder that returns a normal distribution of codes for each image and class.

    Before training the mean is the difference between the downscaled image and the picture of its
    class, so that the decoder reconstructs the downscaled image.
    """

    def __init__(self, pyramid: Pyramid, coarse: Sides, size: int, classes: int) -> None:
        super().__init__()
        self.coarse, self.size, self.classes = coarse, size, classes
        down: list[nn.Module] = []
        for thin, wide in pairwise(pyramid.widths):
            down += [nn.SiLU(), conv3x3(thin, wide, stride=2)]
        first = conv3x3(pyramid.channels, pyramid.widths[0])
        self.features = nn.Sequential(first, *down, nn.SiLU(), nn.Flatten())
        self.last = zero_initialised(nn.Linear(math.prod(pyramid.last) + classes, 2 * size))

    def forward(self, images: Tensor, labels: Tensor, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Compute means and log variances of codes, Shape (M, code size) each.

        Images have Shape (M, C, H, W) in [0, 1]; ``pictures`` are the decoder's of their classes.
        """
        features = with_class(self.features(images), labels, self.classes)
        shift, change = self.last(features).chunk(2, 1)
        small = functional.adaptive_avg_pool2d(images, self.coarse).logit(DARKEST).flatten(1)
        beyond = functional.pad(small - pictures, (0, self.size - small.shape[1]))
        return shift + beyond, change + FIRST_LOG_VARIANCE


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv3x3(inputs, outputs, stride), nn.InstanceNorm2d(outputs), nn.ReLU())


class Up(nn.Module):
    """Block that upsamples features and concatenates those of the skip connection."""

    def __init__(self, wide: int, thin: int) -> None:
        super().__init__()
        self.narrow, self.join = block(wide, thin), block(2 * thin, thin)

    def forward(self, features: Tensor, skipped: Tensor) -> Tensor:
        height, width = skipped.shape[2:]
        enlarged = self.narrow(functional.interpolate(features, (height, width)))
        joined: Tensor = self.join(torch.cat([enlarged, skipped], dim=1))
        return joined


class UNet(nn.Module):
    """Enhancement of images by a residual.

    Ronneberger et al. (2015), with instance normalisation; ROG Appendix A.
    """

    def __init__(self, pyramid: Pyramid) -> None:
        super().__init__()
        narrow, steps = pyramid.widths[0], list(pairwise(pyramid.widths))
        self.first = nn.Sequential(block(pyramid.channels, narrow), block(narrow, narrow))
        self.down = nn.ModuleList(
            nn.Sequential(block(thin, wide, stride=2), block(wide, wide)) for thin, wide in steps
        )
        self.up = nn.ModuleList(Up(wide, thin) for thin, wide in reversed(steps))
        self.last = zero_initialised(conv3x3(narrow, pyramid.channels))

    def enhance(self, images: Tensor) -> Tensor:
        """Enhance images without clipping to [0, 1], which would cut off gradients in training."""
        features = [self.first(images)]
        for down in self.down:
            features.append(down(features[-1]))
        outputs = features.pop()
        for up in self.up:
            outputs = up(outputs, features.pop())
        return images + self.last(outputs)

    def forward(self, images: Tensor) -> Tensor:
        return self.enhance(images).clamp(0, 1)


class GradientStepDenoiser(nn.Module):
    """Denoiser D(x, s) = x - grad E(x, s) with the energy E(x, s) = |R(x, s)|^2 / 2.

    The residual R is that of normal coefficients (`gleak.data.natural_images`), of which D is the
    Wiener filter, plus the output of a small U-Net on images at half resolution, which is zero
    before training. It takes images of any size.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = conv3x3(channels + 1, width, stride=2)
        self.fine = ResidualConvolutions(width)
        wide = 2 * width
        self.coarse = nn.Sequential(
            conv3x3(width, wide, stride=2), ResidualConvolutions(wide), ResidualConvolutions(wide)
        )
        self.up = conv3x3(wide, width)
        self.joined = ResidualConvolutions(width)
        self.last = zero_initialised(conv3x3(width, 4 * channels))

    def residual(self, images: Tensor, deviations: Tensor) -> Tensor:
        """Estimate the noise of images up to an orthogonal map; Shape (M, C, H, W).

        Args:
            images: Shape (M, C, H, W), not clipped.
            deviations: standard deviation of each image's noise; Shape (M).
        """
        noise = deviations[:, None, None, None]
        deviation = (noise.square() + CONTRAST**2).sqrt()
        level = (noise.log() / LEVEL).expand_as(images[:, :1])
        fine = self.fine(self.first(torch.cat([(images - 0.5) / deviation, level], 1)))
        coarse = functional.interpolate(self.up(self.coarse(fine)), fine.shape[2:])
        outputs = self.last(functional.silu(self.joined(fine + coarse)))
        height, base = images.shape[2:]
        learned = functional.pixel_shuffle(outputs, 2)[..., :height, :base]
        return normal_residual(images, deviations) + CONTRAST * noise / deviation * learned

    def energy(self, images: Tensor, deviations: Tensor) -> Tensor:
        """Compute the energy of images; Shape (M). Arguments as in `residual`."""
        return self.residual(images, deviations).square().sum((1, 2, 3)) / 2

    def gain(self, images: Tensor, deviations: Tensor) -> Tensor:
        """Compute the energy less that of normal coefficients, so what was learned; Shape (M)."""
        normal = normal_residual(images, deviations).square().sum((1, 2, 3)) / 2
        return self.energy(images, deviations) - normal

    def denoise(self, images: Tensor, deviations: Tensor) -> Tensor:
        """Remove noise, without clipping; in training, differentiable in the parameters."""
        with torch.enable_grad():
            images = images.detach().requires_grad_()
            energy = self.energy(images, deviations).sum()
            (step,) = torch.autograd.grad(energy, images, create_graph=self.training)
        return images.detach() - step

    def forward(self, images: Tensor, deviations: Tensor) -> Tensor:
        return self.denoise(images, deviations).clamp(0, 1)


def normal_residual(images: Tensor, deviations: Tensor) -> Tensor:
    """Compute the residual of normal coefficients with the spectrum of natural images."""
    prior = ImagePrior.natural(images.shape[1:], images)
    coefficients = prior.coefficients(images.flatten(1) - prior.mean)
    noise = deviations[:, None]
    scaled = coefficients * noise / (prior.variances + noise.square()).sqrt()
    return prior.inverted(scaled).view_as(images)


class TagClassifier(nn.Module):
    """Image classifier; the ``number`` classes with the highest scores are the tags.

    Features are normalised over each image, so that images do not interact.
    """

    def __init__(self, pyramid: Pyramid, classes: int, number: int) -> None:
        super().__init__()
        self.number = number
        down = [
            nn.Sequential(
                nn.SiLU(), conv3x3(thin, wide, stride=2), nn.GroupNorm(1, wide, affine=False)
            )
            for thin, wide in pairwise(pyramid.widths)
        ]
        first = conv3x3(pyramid.channels, pyramid.widths[0])
        self.features = nn.Sequential(first, *down, nn.SiLU())
        self.last = nn.Linear(pyramid.widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits; Shape (M, C, H, W) in [0, 1] to (M, classes)."""
        logits: Tensor = self.last(self.features(images).mean((2, 3)))
        return logits

    def tags(self, images: Tensor) -> Tensor:
        """Return class indices of the tags, most likely first; Shape (M, number)."""
        return self(images).topk(self.number).indices


def normed_conv(inputs: int, outputs: int, kernel: int = 1, *, bias: bool = True) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=bias)
    normed: nn.Conv2d = spectral_norm(layer, eps=EPSILON)
    return normed


def normed_linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    normed: nn.Linear = spectral_norm(nn.Linear(inputs, outputs, bias=bias), eps=EPSILON)
    return normed


class StoredNormalisation(nn.Module):
    """Normalisation by statistics that are stored for several truncations."""

    running_means: Tensor
    running_vars: Tensor

    def __init__(self, channels: int, truncation: float) -> None:
        super().__init__()
        self.row = round(truncation * (STATISTICS - 1))
        self.register_buffer("running_means", torch.zeros(STATISTICS, channels))
        self.register_buffer("running_vars", torch.ones(STATISTICS, channels))

    def normalised(self, features: Tensor) -> Tensor:
        mean, variance = self.running_means[self.row], self.running_vars[self.row]
        return functional.batch_norm(features, mean, variance, eps=EPSILON)


class ConditionalNormalisation(StoredNormalisation):
    """Normalisation with scale and offset computed from code and class, the condition."""

    def __init__(self, channels: int, condition: int, truncation: float) -> None:
        super().__init__(channels, truncation)
        self.scale = normed_linear(condition, channels, bias=False)
        self.offset = normed_linear(condition, channels, bias=False)

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:
        scale, offset = (part(condition)[..., None, None] for part in (self.scale, self.offset))
        return self.normalised(features) * (1 + scale) + offset


class PlainNormalisation(StoredNormalisation):
    """Normalisation with trained scale and offset."""

    def __init__(self, channels: int, truncation: float) -> None:
        super().__init__(channels, truncation)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, features: Tensor) -> Tensor:
        return self.normalised(features) * self.weight[:, None, None] + self.bias[:, None, None]


class ResidualBlock(nn.Module):
    """Four convolutions and a shortcut that drops surplus channels.

    Features are enlarged to the sides of the outputs before the second convolution.
    """

    def __init__(
        self, convolutions: Sequence[LayerShape], condition: int, truncation: float
    ) -> None:
        super().__init__()
        self.convolutions = convolutions
        for index, layer in enumerate(convolutions):
            norm = ConditionalNormalisation(layer.inputs, condition, truncation)
            self.add_module(f"bn_{index}", norm)
            self.add_module(f"conv_{index}", normed_conv(layer.inputs, layer.outputs, layer.kernel))

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:
        last, outputs = self.convolutions[-1], features
        for index in range(len(self.convolutions)):
            norm, conv = (self.get_submodule(f"{kind}_{index}") for kind in ("bn", "conv"))
            outputs = norm(outputs, condition).relu()
            if index == 1:
                outputs = functional.interpolate(outputs, last.sides)
            outputs = conv(outputs)
        return outputs + functional.interpolate(features[:, : last.outputs], last.sides)


class SelfAttention(nn.Module):
    """Self-attention between the positions of an image (Zhang et al. 2019).

    The convolutions are those to queries, keys, values and outputs.
    """

    def __init__(self, shapes: Sequence[LayerShape]) -> None:
        super().__init__()
        self.snconv1x1_theta, self.snconv1x1_phi, self.snconv1x1_g, self.snconv1x1_o_conv = (
            normed_conv(shape.inputs, shape.outputs, bias=False) for shape in shapes
        )
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:
        """Add the attention to features, Shape (M, channels, H, W); the condition is unused."""
        queries = self.snconv1x1_theta(features).flatten(2)
        keys = functional.max_pool2d(self.snconv1x1_phi(features), 2).flatten(2)
        values = functional.max_pool2d(self.snconv1x1_g(features), 2).flatten(2)
        attention = (queries.mT @ keys).softmax(2)
        gathered = (values @ attention.mT).unflatten(2, features.shape[2:])
        outputs: Tensor = features + self.gamma * self.snconv1x1_o_conv(gathered)
        return outputs


class Synthesis(nn.Module):
    """Network from conditions, which are codes and class embeddings, to images in [-1, 1].

    Args:
        blocks: shapes of the convolutions of each `ResidualBlock`.
        attention: shapes for a `SelfAttention`, by the number of the block before which it is.
        condition: length of a condition.
        truncation: determines the statistics of `StoredNormalisation`.
    """

    def __init__(
        self,
        blocks: Sequence[Sequence[LayerShape]],
        attention: Mapping[int, Sequence[LayerShape]],
        condition: int,
        truncation: float,
    ) -> None:
        super().__init__()
        first, width = blocks[0][0], blocks[-1][-1].outputs
        self.first = (*first.sides, first.inputs)
        self.gen_z = normed_linear(condition, math.prod(self.first), bias=True)
        layers: list[nn.Module] = []
        for number, convolutions in enumerate(blocks):
            if number in attention:
                layers.append(SelfAttention(attention[number]))
            layers.append(ResidualBlock(convolutions, condition, truncation))
        self.layers = nn.ModuleList(layers)
        self.bn = PlainNormalisation(width, truncation)
        self.conv_to_rgb = normed_conv(width, width, 3)

    def forward(self, condition: Tensor) -> Tensor:
        """Map Shape (M, condition) to (M, 3, H, W); the first layer puts channels last."""
        features = self.gen_z(condition).unflatten(1, self.first).movedim(3, 1)
        for layer in self.layers:
            features = layer(features, condition)
        images: Tensor = self.conv_to_rgb(self.bn(features).relu())[:, :COLOURS].tanh()
        return images


class BigGANDeep(nn.Module):
    """Generator of BigGAN-deep, for inference; its tensors have the names of published files.

    It is a `gleak.knowledge.base.ImageGenerator`, whose codes and class embeddings have length
    ``code`` and whose codes have the standard deviation ``truncation``.
    """

    def __init__(
        self,
        blocks: Sequence[Sequence[LayerShape]],
        attention: Mapping[int, Sequence[LayerShape]],
        code: int,
        classes: int,
        truncation: float,
    ) -> None:
        super().__init__()
        self.code_size, self.classes, self.truncation = code, classes, truncation
        self.embeddings = nn.Linear(classes, code, bias=False)
        self.generator = Synthesis(blocks, attention, 2 * code, truncation)

    def generate(self, codes: Tensor, labels: Tensor) -> Tensor:
        embedded = self.embeddings(functional.one_hot(labels, self.classes).to(codes.dtype))
        images: Tensor = self.generator(torch.cat([self.truncation * codes, embedded], 1))
        return (images + 1) / 2
