"""The layers of residual networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from gleak.models.activations import activation
from gleak.models.normalisation import normalisation_layers
from gleak.models.variational import variational_layers

if TYPE_CHECKING:
    from gleak.models.base import Norm
    from gleak.models.convolution import Convolution
    from gleak.models.residual import Block, ResidualNetwork


class Residual(nn.Module):
    """The sum of what a body and a shortcut make of the same inputs.

    No layer overwrites the outputs of another, so that gradients can be split layer by layer (see
    `gleak.matching.gradients`).
    """

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (N, C, H, W) to that of the body's outputs."""
        outputs: Tensor = self.body(inputs) + self.shortcut(inputs)
        return outputs


def residual_layers(model: ResidualNetwork, stem: Convolution, classes: int) -> nn.Sequential:
    """Normalisation, stem, blocks, global average pooling and a dense layer.

    The stem and each block are activated.

    Args:
        model: names activation, normalisations and blocks.
        stem: the first convolution.
        classes: number of outputs.
    """
    layers = normalisation_layers(model.normalise)
    layers += [*convolution_layers(stem, model.norm), activation(model.activation)]
    for block in model.blocks():
        layers += [_residual(block, model.activation, model.norm), activation(model.activation)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    layers += [*variational_layers(model, model.features), nn.Linear(model.features, classes)]
    return nn.Sequential(*layers)


def _residual(block: Block, nonlinearity: str, norm: Norm) -> Residual:
    first, *others = block.body
    body = convolution_layers(first, norm)
    for convolution in others:
        body += [activation(nonlinearity), *convolution_layers(convolution, norm)]
    shortcut = [] if block.shortcut is None else convolution_layers(block.shortcut, norm)
    return Residual(nn.Sequential(*body), nn.Sequential(*shortcut))


def convolution_layers(convolution: Convolution, norm: Norm) -> list[nn.Module]:
    """A convolution and the batch norm behind it, or, without one, the convolution with biases."""
    layer = convolution.layer(bias=norm == "none")
    return [layer, nn.BatchNorm2d(convolution.outputs)] if norm == "batch" else [layer]
