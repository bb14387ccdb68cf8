"""First parameters of a network."""

from __future__ import annotations

from typing import Literal

from torch import nn

from gleak.runtime.seeding import drawing_from, torch_stream

Init = Literal["default", "uniform"]


def initialise(network: nn.Module, init: Init, bound: float, seed: int) -> None:
    """Draw all parameters anew, on the CPU so that a GPU changes no draw.

    Args:
        network: changed in place.
        init: "default" as torch's layers do it, "uniform" on [-bound, bound].
        bound: of the uniform initialisation.
        seed: of the run.
    """
    place = next(network.parameters()).device
    network.cpu()
    stream = torch_stream(seed, "initialisation")
    if init == "uniform":
        for parameter in network.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=stream)
    else:
        with drawing_from(stream):
            _reset_layers(network)
    network.to(place)


def _reset_layers(network: nn.Module) -> None:
    for layer in network.modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()
