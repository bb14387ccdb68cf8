"""First parameters of a network."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from gleak.runtime.seeding import torch_stream

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
        _reset_layers(network, stream.initial_seed())
    network.to(place)


def _reset_layers(network: nn.Module, seed: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in network.modules():
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                reset()
