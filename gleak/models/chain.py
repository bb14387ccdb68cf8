"""Networks whose layers run one after another, taken apart into what their parts do."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from gleak.core.errors import IncompatibleError
from gleak.models.layers import ACTIVATIONS, Normalisation

Pool = nn.MaxPool2d | nn.AvgPool2d


@dataclass
class ConvolutionStep:
    """A convolution and what is done to its outputs before the next one.

    Args:
        name: of the convolution, in the network.
        layer: the convolution.
        norm: batch normalisation behind it.
        activation: behind that.
        pool: behind that.
    """

    name: str
    layer: nn.Conv2d
    norm: nn.BatchNorm2d | None = None
    activation: nn.Module = field(default_factory=nn.Identity)
    pool: Pool | None = None

    @property
    def factor(self) -> int:
        """By how much it shrinks the side of an image."""
        return int(self.layer.stride[0]) * (2 if self.pool is not None else 1)


@dataclass
class DenseStep:
    """A dense layer and what is done to its outputs.

    Args:
        name: of the layer, in the network.
        layer: the layer.
        activation: behind it; the identity behind the last.
        dropout: share of the activated values that clients drop.
    """

    name: str
    layer: nn.Linear
    activation: nn.Module = field(default_factory=nn.Identity)
    dropout: float = 0.0


@dataclass
class Chain:
    """Convolutions, then dense layers.

    Args:
        normalisation: of the images before the first convolution.
        convolutions: in their order.
        dense: in their order.
    """

    normalisation: Normalisation | None = None
    convolutions: list[ConvolutionStep] = field(default_factory=list)
    dense: list[DenseStep] = field(default_factory=list)


def take_apart(network: nn.Module) -> Chain:
    """The steps of a network that runs its layers one after another.

    Average pooling to a fixed side is left out: it must leave the images it is used on as they are.

    Raises:
        IncompatibleError: it is no `torch.nn.Sequential`, or a layer has no place in such a chain.
    """
    if not isinstance(network, nn.Sequential):
        kind = type(network).__name__
        raise IncompatibleError(
            f"the network, a {kind}, is no torch.nn.Sequential, which tells its order"
        )
    chain = Chain()
    for name, layer in network.named_modules(remove_duplicate=False):
        if not isinstance(layer, nn.Sequential):
            _add(chain, name, layer)
    return chain


def _add(chain: Chain, name: str, layer: nn.Module) -> None:
    """Put a layer where it belongs, or say that it belongs nowhere."""
    steps = chain.dense or chain.convolutions
    last = steps[-1] if steps else None
    unpooled = getattr(last, "pool", None) is None
    bare = last is not None and isinstance(last.activation, nn.Identity) and unpooled
    match layer:
        case Normalisation() if last is None:
            chain.normalisation = layer
        case nn.Conv2d() if not chain.dense:
            chain.convolutions.append(ConvolutionStep(name, layer))
        case nn.Linear():
            chain.dense.append(DenseStep(name, layer))
        case nn.BatchNorm2d() if isinstance(last, ConvolutionStep) and bare and last.norm is None:
            last.norm = layer
        case nn.MaxPool2d() | nn.AvgPool2d() if isinstance(last, ConvolutionStep) and unpooled:
            last.pool = layer
        case nn.Dropout() if isinstance(last, DenseStep):
            last.dropout = layer.p
        case _ if type(layer) in ACTIVATIONS.values() and last is not None and bare:
            last.activation = layer
        case nn.Identity() | nn.Flatten() | nn.AdaptiveAvgPool2d():
            pass
        case _:
            kind = type(layer).__name__
            raise IncompatibleError(
                f"a chain of convolutions and dense layers has no place for {kind} {name!r}"
            )
