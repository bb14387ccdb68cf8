"""Residual networks (He et al. 2016)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import (
    Activation,
    Convolution,
    Norm,
    Normalised,
    Placed,
    PrecodeNetwork,
    activation_layer,
    normalisation_layers,
)


@dataclass(frozen=True)
class Block:
    """Convolutions and a shortcut whose outputs are added (He et al., equations 1 and 2)."""

    body: tuple[Convolution, ...]

    @property
    def shortcut(self) -> Convolution | None:
        """1 x 1 convolution if the body changes the shape, else None (identity)."""
        inputs, outputs = self.body[0].inputs, self.body[-1].outputs
        stride = math.prod(convolution.stride for convolution in self.body)
        if inputs == outputs and stride == 1:
            return None
        return Convolution(inputs, outputs, kernel=1, stride=stride)


def basic_block(inputs: int, outputs: int, stride: int) -> Block:
    return Block((Convolution(inputs, outputs, stride=stride), Convolution(outputs, outputs)))


def bottleneck(inputs: int, width: int, stride: int) -> Block:
    """Return a block whose last convolution has four times as many channels as the others."""
    first, last = Convolution(inputs, width, kernel=1), Convolution(width, 4 * width, kernel=1)
    return Block((first, Convolution(width, width, stride=stride), last))


class ResidualNetwork(PrecodeNetwork):
    """Base class of networks of a convolution, blocks, average pooling and a dense layer.

    Features are averaged to ``positions`` x ``positions``, 1 x 1 in most. Convolutions have biases
    in place of a batch normalisation, unless ``convolution_bias`` is false.
    """

    activation: Activation = parameter("relu", "after each convolution and sum", source="He et al.")
    norm: Norm
    normalise: Normalised
    positions: ClassVar[int] = 1
    convolution_bias: ClassVar[bool] = True

    @abstractmethod
    def stem(self, channels: int) -> Convolution:
        """Return the first convolution, for images of ``channels`` channels."""

    @abstractmethod
    def stages(self) -> list[list[Block]]:
        """Return the blocks of each stage."""

    def blocks(self) -> list[Block]:
        """Return all blocks in order."""
        return [block for stage in self.stages() for block in stage]

    def pooled(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """Return height and width of the first block's inputs, by default the stem's outputs."""
        return sides

    @property
    def has_batch_norm(self) -> bool:
        return self.norm == "batch"

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        layers = normalisation_layers(self.normalise)
        layers += [*self._built(self.stem(shape[0])).values(), activation_layer(self.activation)]
        for block in self.blocks():
            layers += [self._block(block), activation_layer(self.activation)]
        ((features, _),) = self.dense_layers(shape, classes)
        layers += [torch.nn.AdaptiveAvgPool2d(self.positions), torch.nn.Flatten()]
        layers += self.variational_layers(features)
        last = torch.nn.Linear(features, classes, bias=self.dense_bias)
        return torch.nn.Sequential(*layers, last)

    def _built(self, convolution: Convolution, number: int = 1) -> dict[str, torch.nn.Module]:
        """Build a convolution with biases, or with a batch normalisation, named as by torchvision.

        The names end with the number of the convolution in its block.
        """
        if self.norm == "batch":
            norm = torch.nn.BatchNorm2d(convolution.outputs)
            return {f"conv{number}": convolution.layer(bias=False), f"bn{number}": norm}
        return {f"conv{number}": convolution.layer(bias=self.convolution_bias)}

    def _block(self, block: Block, *, activated: bool = False) -> torch.nn.Module:
        """Build a block, whose last convolution is not activated before the sum.

        If it is activated, the sum is, and the layers have torchvision's names.
        """
        from gleak.models.layers import ActivatedResidual, Residual

        body: dict[str, torch.nn.Module] = {}
        for number, convolution in enumerate(block.body, start=1):
            body |= self._built(convolution, number)
            if number < len(block.body):
                body[f"activation{number}"] = activation_layer(self.activation)
        parallel = {} if block.shortcut is None else self._built(block.shortcut)
        shortcut = torch.nn.Sequential(*parallel.values())
        if activated:
            return ActivatedResidual(body, shortcut, activation_layer(self.activation))
        return Residual(torch.nn.Sequential(*body.values()), shortcut)

    @property
    def values_per_channel(self) -> int:
        """Trained values per channel: scale and shift with batch norm, else biases if any."""
        return 2 if self.norm == "batch" else int(self.convolution_bias)

    @property
    def features(self) -> int:
        """Number of channels after the last block, which the dense layer takes."""
        return self.blocks()[-1].body[-1].outputs

    def dense_layers(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        return [(self.features * self.positions**2, classes)]

    def placed_convolutions(self, shape: tuple[int, ...]) -> Iterator[Placed]:
        stem = self.stem(shape[0])
        sides = stem.sides(shape[1:])
        yield stem, sides
        sides = self.pooled(sides)
        for block in self.blocks():
            if block.shortcut is not None:
                yield block.shortcut, block.shortcut.sides(sides)
            for convolution in block.body:
                sides = convolution.sides(sides)
                yield convolution, sides


def doubling_stages(
    block: Callable[[int, int, int], Block],
    first_width: int,
    depths: Sequence[int],
    stride: int = 2,
) -> list[list[Block]]:
    """Return the blocks of stages, each twice as wide as the one before, all but one strided."""
    stages: list[list[Block]] = []
    before = first_width
    for number, depth in enumerate(depths):
        width = first_width * 2**number
        first = block(before, width, stride if stages else 1)
        before = first.body[-1].outputs
        stages.append([first] + [block(before, width, 1)] * (depth - 1))
    return stages


class ImageNetResidual(ResidualNetwork):
    """Base class of torchvision's residual networks for ImageNet (He et al. 2016, Table 1).

    The stem is followed by max pooling and four stages of ``depths`` blocks. Each stage is twice as
    wide as the one before; all but the first begin with stride 2. Parameters have torchvision's
    names.
    """

    smallest_side: ClassVar[int] = 32
    depths: ClassVar[tuple[int, ...]]
    bottlenecks: ClassVar[bool] = False

    width: int = parameter(64, "channels of the stem and the first stage", source="He et al.", ge=1)

    def stem(self, channels: int) -> Convolution:
        return Convolution(channels, self.width, kernel=7, stride=2)

    def pooled(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """Return height and width after 3 x 3 max pooling with stride 2."""
        return tuple((side + 1) // 2 for side in sides)

    def stages(self) -> list[list[Block]]:
        block = bottleneck if self.bottlenecks else basic_block
        return doubling_stages(block, self.width, self.depths)

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        parts: dict[str, torch.nn.Module] = {
            "normalisation": torch.nn.Sequential(*normalisation_layers(self.normalise)),
            **self._built(self.stem(shape[0])),
            "activation": activation_layer(self.activation),
            "maxpool": torch.nn.MaxPool2d(3, stride=2, padding=1),
        }
        for number, stage in enumerate(self.stages(), start=1):
            blocks = [self._block(block, activated=True) for block in stage]
            parts[f"layer{number}"] = torch.nn.Sequential(*blocks)
        parts |= {
            "avgpool": torch.nn.AdaptiveAvgPool2d(1),
            "flatten": torch.nn.Flatten(),
            "precode": torch.nn.Sequential(*self.variational_layers(self.features)),
            "fc": torch.nn.Linear(self.features, classes),
        }
        return torch.nn.Sequential(OrderedDict(parts))


@register("resnet18")
class ResNet18(ImageNetResidual):
    """ResNet-18 for ImageNet, by default without batch normalisation; ROG's is `resnet18_rog`.

    Convolutions have biases instead. With norm=batch and normalise=imagenet it equals torchvision's
    network, so that `pretrained` parameters fit.
    """

    source = "He et al. 2016, Table 1"
    depths: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)

    norm: Norm = parameter(
        "none",
        "none: convolutions have biases instead of batch normalisation",
        source="ours; batch in He et al.",
    )
    normalise: Normalised = parameter(
        "none",
        "normalisation of images before the first convolution",
        source="ours; imagenet in torchvision",
    )


@register("resnet18_rog")
class ROGResNet18(ResidualNetwork):
    """ResNet-18 as in ROG: no batch normalisation, no max pooling, and no biases.

    ROG removes batch normalisation because it impairs federated learning. The stem keeps half the
    resolution, and features are averaged to 8 x 8 positions, all that images of 128 x 128 have
    left, so that the classifier has 32,768 inputs. Torchvision's network is `resnet18`.
    """

    source = "ROG section 4.2 and the authors' code; He et al. 2016, Table 1"
    smallest_side: ClassVar[int] = 16
    positions: ClassVar[int] = 8
    convolution_bias: ClassVar[bool] = False
    dense_bias: ClassVar[bool] = False

    norm: Norm = parameter("none", "batch: after each convolution", source="ROG section 4.2")
    normalise: Normalised = parameter(
        "none", "normalisation of images before the first convolution", source="none in ROG's code"
    )
    width: int = parameter(64, "channels of the stem and the first stage", source="He et al.", ge=1)

    def stem(self, channels: int) -> Convolution:
        return Convolution(channels, self.width, kernel=7, stride=2)

    def stages(self) -> list[list[Block]]:
        return doubling_stages(basic_block, self.width, (2, 2, 2, 2))


@register("resnet20")
class ResNet20(ResidualNetwork):
    """ResNet-20 for CIFAR: three stages of three blocks with 16, 32 and 64 channels.

    The running statistics of batch normalisation are broadcast with the parameters. Shortcuts are
    1 x 1 convolutions where the shape changes (He et al., option B). AGIC's ResNet20-4 has width=4;
    downsampling=false is DLG's variant, which keeps the resolution in all stages, at 16 times the
    cost in the last.
    """

    source = "He et al. 2016, section 4.2; AGIC"
    smallest_side: ClassVar[int] = 8

    norm: Norm = parameter("batch", "none: convolutions have biases instead", source="He et al.")
    width: int = parameter(1, "multiplies all channels", source="He et al.; 4 in AGIC", ge=1)
    downsampling: bool = parameter(
        True, "stride 2 at the second and third stage; false: 1", source="He et al.; false in DLG"
    )
    normalise: Normalised = parameter(
        "none",
        "normalisation of images before the first convolution",
        source="that of the dataset in AGIC section V-A",
    )

    def stem(self, channels: int) -> Convolution:
        return Convolution(channels, 16 * self.width)

    def stages(self) -> list[list[Block]]:
        stride = 2 if self.downsampling else 1
        return doubling_stages(basic_block, 16 * self.width, (3, 3, 3), stride)


@register("resnet50")
class ResNet50(ImageNetResidual):
    """ResNet-50 for ImageNet: 3, 4, 6 and 3 bottlenecks of 64, 128, 256 and 512 channels.

    It equals torchvision's network, so that `pretrained` parameters fit: the second convolution of
    a bottleneck is strided, not the first, and the first layer normalises by ImageNet's means and
    deviations. The running statistics of batch normalisation are broadcast with the parameters.
    """

    source = "He et al. 2016, Table 1; torchvision; AGIC section V"
    depths: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)
    bottlenecks: ClassVar[bool] = True

    norm: Norm = parameter("batch", "none: convolutions have biases instead", source="He et al.")
    normalise: Normalised = parameter(
        "imagenet", "normalisation of images before the first convolution", source="torchvision"
    )
