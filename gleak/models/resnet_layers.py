"""Layers of residual networks (see `gleak.models.resnet`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor, nn

from gleak.models.layers import activation, normalisation_layers
from gleak.models.variational import variational_layers

if TYPE_CHECKING:
    from gleak.models.convolution import Convolution
    from gleak.models.resnet import Block, ImageNetResidual, ResidualNetwork


class Residual(nn.Module):
    """Sum of a body and a shortcut of the same inputs.

    No layer overwrites the outputs of another, so that gradients can be split layer by layer (see
    `gleak.attacks.matching.gradients`).
    """

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Map Shape (N, C, H, W) to the shape of the body's outputs."""
        outputs: Tensor = self.body(inputs) + self.shortcut(inputs)
        return outputs


def residual_layers(model: ResidualNetwork, stem: Convolution, classes: int) -> nn.Sequential:
    """Build normalisation, stem, blocks, average pooling and a dense layer.

    An activation follows the stem and each block.

    Args:
        model: spec with activation, normalisations, blocks, positions and biases.
        stem: the first convolution.
        classes: number of outputs.
    """
    layers = normalisation_layers(model.normalise)
    layers += [*convolution_layers(stem, model), activation(model.activation)]
    for block in model.blocks():
        layers += [_residual(block, model), activation(model.activation)]
    features = model.features * model.positions**2
    layers += [nn.AdaptiveAvgPool2d(model.positions), nn.Flatten()]
    layers += variational_layers(model, features)
    return nn.Sequential(*layers, nn.Linear(features, classes, bias=model.dense_bias))


def _residual(block: Block, model: ResidualNetwork) -> Residual:
    first, *others = block.body
    body = convolution_layers(first, model)
    for convolution in others:
        body += [activation(model.activation), *convolution_layers(convolution, model)]
    shortcut = [] if block.shortcut is None else convolution_layers(block.shortcut, model)
    return Residual(nn.Sequential(*body), nn.Sequential(*shortcut))


def convolution_layers(convolution: Convolution, model: ResidualNetwork) -> list[nn.Module]:
    """Build a convolution, with biases or a batch normalisation if the network has them."""
    if model.norm == "batch":
        return [convolution.layer(bias=False), nn.BatchNorm2d(convolution.outputs)]
    return [convolution.layer(bias=model.convolution_bias)]


class ActivatedResidual(nn.Module):
    """Activated sum of a body and a shortcut of the same inputs.

    The layers of the body are direct children, as in torchvision's blocks. None overwrites the
    outputs of another (see `Residual`).

    Args:
        body: layers by name, in order.
        shortcut: layer in parallel to the body.
        after: activation of the sum.
    """

    def __init__(self, body: Mapping[str, nn.Module], shortcut: nn.Module, after: nn.Module):
        super().__init__()
        for name, layer in body.items():
            self.add_module(name, layer)
        self.downsample, self.activation = shortcut, after

    def forward(self, inputs: Tensor) -> Tensor:
        """Map Shape (N, C, H, W) to the shape of the body's outputs."""
        *body, shortcut, after = self.children()
        values = inputs
        for layer in body:
            values = layer(values)
        outputs: Tensor = after(values + shortcut(inputs))
        return outputs


def resnet_layers(model: ImageNetResidual, stem: Convolution, classes: int) -> nn.Sequential:
    """Build a residual network for ImageNet, with torchvision's parameter names.

    Its layers are normalisation, stem, max pooling, stages, global average pooling and a dense
    layer.

    Args:
        model: spec with activation, normalisations and the blocks of each stage.
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
    """Build a block, without an activation between its last convolution and the sum."""
    body: dict[str, nn.Module] = {}
    for number, convolution in enumerate(block.body, start=1):
        body |= _numbered(number, convolution, model)
        if number < len(block.body):
            body[f"activation{number}"] = activation(model.activation)
    shortcut = [] if block.shortcut is None else convolution_layers(block.shortcut, model)
    return ActivatedResidual(body, nn.Sequential(*shortcut), activation(model.activation))


def _numbered(
    number: int, convolution: Convolution, model: ImageNetResidual
) -> dict[str, nn.Module]:
    """Return a convolution and its batch normalisation, if any, by name."""
    layers = convolution_layers(convolution, model)
    return {f"{kind}{number}": layer for kind, layer in zip(("conv", "bn"), layers, strict=False)}
