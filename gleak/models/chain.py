"""Sequential networks, decomposed into convolution and dense steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.base import ACTIVATIONS

if TYPE_CHECKING:
    from gleak.models.layers import Normalisation

    Pool = torch.nn.MaxPool2d | torch.nn.AvgPool2d


@dataclass
class ConvolutionStep:
    """A convolution, its name in the network, and the layers up to the next one, in order."""

    name: str
    layer: torch.nn.Conv2d
    norm: torch.nn.BatchNorm2d | None = None
    activation: torch.nn.Module = field(default_factory=lambda: torch.nn.Identity())
    pool: Pool | None = None

    @property
    def factor(self) -> int:
        """Factor by which the step reduces the side of an image."""
        return int(self.layer.stride[0]) * (2 if self.pool is not None else 1)


@dataclass
class DenseStep:
    """A dense layer, its name, its activation, and the probability of dropout after it."""

    name: str
    layer: torch.nn.Linear
    activation: torch.nn.Module = field(default_factory=lambda: torch.nn.Identity())
    dropout: float = 0.0


@dataclass
class Chain:
    """Convolutions, whose first inputs may be normalised, followed by dense layers."""

    normalisation: Normalisation | None = None
    convolutions: list[ConvolutionStep] = field(default_factory=list)
    dense: list[DenseStep] = field(default_factory=list)


def decompose(network: torch.nn.Module) -> Chain:
    """Decompose a sequential network into its steps.

    Average pooling to a fixed side is ignored: it must not change the images that are used.

    Raises:
        IncompatibleError: it is no `torch.nn.Sequential`, or contains an unsupported layer.
    """
    if not isinstance(network, torch.nn.Sequential):
        raise IncompatibleError(
            f"the network, a {type(network).__name__}, is not a torch.nn.Sequential, so its order "
            "is unknown"
        )
    chain = Chain()
    for name, layer in network.named_modules(remove_duplicate=False):
        if not isinstance(layer, torch.nn.Sequential):
            _add(chain, name, layer)
    return chain


def _add(chain: Chain, name: str, layer: torch.nn.Module) -> None:
    from gleak.models.layers import Normalisation

    steps = chain.dense or chain.convolutions
    last = steps[-1] if steps else None
    unpooled = getattr(last, "pool", None) is None
    bare = last is not None and isinstance(last.activation, torch.nn.Identity) and unpooled
    match layer:
        case Normalisation() if last is None:
            chain.normalisation = layer
        case torch.nn.Conv2d() if not chain.dense:
            chain.convolutions.append(ConvolutionStep(name, layer))
        case torch.nn.Linear():
            chain.dense.append(DenseStep(name, layer))
        case torch.nn.BatchNorm2d() if (
            isinstance(last, ConvolutionStep) and bare and last.norm is None
        ):
            last.norm = layer
        case torch.nn.MaxPool2d() | torch.nn.AvgPool2d() if (
            isinstance(last, ConvolutionStep) and unpooled
        ):
            last.pool = layer
        case torch.nn.Dropout() if isinstance(last, DenseStep):
            last.dropout = layer.p
        case _ if type(layer).__name__ in ACTIVATIONS.values() and last is not None and bare:
            last.activation = layer
        case torch.nn.Identity() | torch.nn.Flatten() | torch.nn.AdaptiveAvgPool2d():
            pass
        case _:
            raise IncompatibleError(
                "a chain of convolutions and dense layers cannot contain "
                f"{type(layer).__name__} {name!r}"
            )
