"""Generator of BigGAN-deep, for inference; its tensors have the names of published files."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import spectral_norm

from gleak.knowledge.biggan import (
    ATTENTION_REDUCTION,
    ATTENTION_SIDE,
    CODE,
    CONDITION,
    FIRST_SIDE,
    IMAGE,
    MULTIPLIERS,
    Block,
    blocks,
)

EPSILON = 1e-4
STATISTICS = 51
"""Number of truncations between 0 and 1 with stored statistics of activations."""


def normed_conv(inputs: int, outputs: int, kernel: int = 1, *, bias: bool = True) -> nn.Conv2d:
    """Build a convolution with spectral normalisation (Miyato et al. 2018)."""
    layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=bias)
    normed: nn.Conv2d = spectral_norm(layer, eps=EPSILON)
    return normed


def normed_linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    """Build a dense layer with spectral normalisation."""
    normed: nn.Linear = spectral_norm(nn.Linear(inputs, outputs, bias=bias), eps=EPSILON)
    return normed


class Normalisation(nn.Module):
    """Normalisation by statistics that are stored for several truncations.

    Args:
        channels: number of channels.
        truncation: determines the statistics.
    """

    running_means: Tensor
    running_vars: Tensor

    def __init__(self, channels: int, truncation: float) -> None:
        super().__init__()
        self.row = round(truncation * (STATISTICS - 1))
        self.register_buffer("running_means", torch.zeros(STATISTICS, channels))
        self.register_buffer("running_vars", torch.ones(STATISTICS, channels))

    def normalised(self, features: Tensor) -> Tensor:
        """Normalise features; Shape (M, channels, H, W), in and out."""
        mean, variance = self.running_means[self.row], self.running_vars[self.row]
        return functional.batch_norm(features, mean, variance, eps=EPSILON)


class ConditionalNormalisation(Normalisation):
    """Normalisation with scale and offset computed from code and class."""

    def __init__(self, channels: int, truncation: float) -> None:
        super().__init__(channels, truncation)
        self.scale = normed_linear(CONDITION, channels, bias=False)
        self.offset = normed_linear(CONDITION, channels, bias=False)

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:
        """Normalise features; Shapes (M, channels, H, W) and (M, CONDITION)."""
        scale, offset = (part(condition)[..., None, None] for part in (self.scale, self.offset))
        return self.normalised(features) * (1 + scale) + offset


class PlainNormalisation(Normalisation):
    """Normalisation with trained scale and offset."""

    def __init__(self, channels: int, truncation: float) -> None:
        super().__init__(channels, truncation)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, features: Tensor) -> Tensor:
        """Normalise features; Shape (M, channels, H, W), in and out."""
        return self.normalised(features) * self.weight[:, None, None] + self.bias[:, None, None]


class ResidualBlock(nn.Module):
    """Four convolutions and a shortcut that drops surplus channels.

    Args:
        sizes: of the block.
        truncation: see `Normalisation`.
    """

    def __init__(self, sizes: Block, truncation: float) -> None:
        super().__init__()
        self.sizes = sizes
        for index, layer in enumerate(sizes.convolutions):
            norm = ConditionalNormalisation(layer.inputs, truncation)
            self.add_module(f"bn_{index}", norm)
            self.add_module(f"conv_{index}", normed_conv(layer.inputs, layer.outputs, layer.kernel))

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:
        """Map Shape (M, inputs, H, W) to (M, outputs, H, W), twice as large if enlarging."""
        outputs = features
        for index in range(len(self.sizes.convolutions)):
            norm, conv = (self.get_submodule(f"{kind}_{index}") for kind in ("bn", "conv"))
            outputs = norm(outputs, condition).relu()
            outputs = conv(self._enlarged(outputs) if index == 1 else outputs)
        return outputs + self._enlarged(features[:, : self.sizes.outputs])

    def _enlarged(self, features: Tensor) -> Tensor:
        side = self.sizes.side * (1 + self.sizes.enlarges)
        return functional.interpolate(features, (side, side))


class SelfAttention(nn.Module):
    """Self-attention between the positions of an image (Zhang et al. 2019).

    Args:
        channels: number of input and output channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        few, half = channels // ATTENTION_REDUCTION, channels // 2
        self.snconv1x1_theta = normed_conv(channels, few, bias=False)
        self.snconv1x1_phi = normed_conv(channels, few, bias=False)
        self.snconv1x1_g = normed_conv(channels, half, bias=False)
        self.snconv1x1_o_conv = normed_conv(half, channels, bias=False)
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
    """Network from codes and class embeddings to images in [-1, 1].

    Args:
        width: channels before the last layer.
        truncation: see `Normalisation`.
    """

    def __init__(self, width: int, truncation: float) -> None:
        super().__init__()
        self.first = (FIRST_SIDE, FIRST_SIDE, MULTIPLIERS[0] * width)
        self.gen_z = normed_linear(CONDITION, FIRST_SIDE**2 * self.first[2], bias=True)
        layers: list[nn.Module] = []
        for sizes in blocks(width):
            if sizes.side == ATTENTION_SIDE and not sizes.enlarges:
                layers.append(SelfAttention(sizes.inputs))
            layers.append(ResidualBlock(sizes, truncation))
        self.layers = nn.ModuleList(layers)
        self.bn = PlainNormalisation(width, truncation)
        self.conv_to_rgb = normed_conv(width, width, 3)

    def forward(self, condition: Tensor) -> Tensor:
        """Map Shape (M, CONDITION) to (M, *IMAGE); the first layer's outputs have channels last."""
        features = self.gen_z(condition).unflatten(1, self.first).movedim(3, 1)
        for layer in self.layers:
            features = layer(features, condition)
        images: Tensor = self.conv_to_rgb(self.bn(features).relu())[:, : IMAGE[0]].tanh()
        return images


class BigGANDeep(nn.Module):
    """BigGAN-deep; a `gleak.knowledge.base.ImageGenerator`.

    Args:
        width: channels before the last layer.
        classes: number of classes.
        truncation: standard deviation of codes.
    """

    code_size = CODE

    def __init__(self, width: int, classes: int, truncation: float) -> None:
        super().__init__()
        self.classes, self.truncation = classes, truncation
        self.embeddings = nn.Linear(classes, CODE, bias=False)
        self.generator = Synthesis(width, truncation)

    def generate(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Generate images; see `gleak.knowledge.base.ImageGenerator.generate`."""
        embedded = self.embeddings(functional.one_hot(labels, self.classes).to(codes.dtype))
        images: Tensor = self.generator(torch.cat([self.truncation * codes, embedded], 1))
        return (images + 1) / 2
