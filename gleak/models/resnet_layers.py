"""The layers of residual networks for ImageNet, under torchvision's names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor, nn

from gleak.models.activations import activation
from gleak.models.blocks import convolution_layers
from gleak.models.normalisation import normalisation_layers
from gleak.models.variational import variational_layers

if TYPE_CHECKING:
    from gleak.models.convolution import Convolution
    from gleak.models.imagenet_residual import ImageNetResidual
    from gleak.models.residual import Block


class ActivatedResidual(nn.Module):
    """The activated sum of what a body and a shortcut make of the same inputs.

    The layers of the body are its own, as in torchvision's blocks. None overwrites the outputs of
    another (see `gleak.models.blocks.Residual`).

    Args:
        body: layers by name, in their order.
        shortcut: what the inputs pass beside them.
        after: activates the sum.
    """

    def __init__(self, body: Mapping[str, nn.Module], shortcut: nn.Module, after: nn.Module):
        super().__init__()
        for name, layer in body.items():
            self.add_module(name, layer)
        self.downsample, self.activation = shortcut, after

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (N, C, H, W) to that of the body's outputs."""
        *body, shortcut, after = self.children()
        values = inputs
        for layer in body:
            values = layer(values)
        outputs: Tensor = after(values + shortcut(inputs))
        return outputs


def resnet_layers(model: ImageNetResidual, stem: Convolution, classes: int) -> nn.Sequential:
    """Normalisation, stem, max-pooling, stages, global average pooling and a dense layer.

    Args:
        model: names activation, normalisations and the blocks of each stage.
        stem: the first convolution.
        classes: number of outputs.
    """
    stages = {
        f"layer{number}": nn.Sequential(*(_block(block, model) for block in blocks))
        for number, blocks in enumerate(model.stages(), start=1)
    }
    parts: dict[str, nn.Module] = {
        "normalisation": nn.Sequential(*normalisation_layers(model.normalise)),
        **_numbered(1, stem, model),
        "activation": activation(model.activation),
        "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
        **stages,
        "avgpool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "precode": nn.Sequential(*variational_layers(model, model.features)),
        "fc": nn.Linear(model.features, classes),
    }
    return nn.Sequential(OrderedDict(parts))


def _block(block: Block, model: ImageNetResidual) -> ActivatedResidual:
    """Its last convolution is activated behind the sum alone."""
    body: dict[str, nn.Module] = {}
    for number, convolution in enumerate(block.body, start=1):
        body |= _numbered(number, convolution, model)
        if number < len(block.body):
            body[f"activation{number}"] = activation(model.activation)
    shortcut = [] if block.shortcut is None else convolution_layers(block.shortcut, model.norm)
    return ActivatedResidual(body, nn.Sequential(*shortcut), activation(model.activation))


def _numbered(
    number: int, convolution: Convolution, model: ImageNetResidual
) -> dict[str, nn.Module]:
    """A convolution and its batch norm, if it has one, by name."""
    layers = convolution_layers(convolution, model.norm)
    return {f"{kind}{number}": layer for kind, layer in zip(("conv", "bn"), layers, strict=False)}
