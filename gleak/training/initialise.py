"""First parameters of a network."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from gleak.runtime.seeding import torch_stream

Init = Literal["default", "uniform"]


def initialise(network: nn.Module, init: Init, bound: float, seed: int) -> None:
    """Draw all parameters anew.

    Args:
        network: changed in place.
        init: "default" as torch's layers do it, "uniform" on [-bound, bound].
        bound: of the uniform initialisation.
        seed: of the run.
    """
    stream = torch_stream(seed, "initialisation")
    if init == "uniform":
        for parameter in network.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=stream)
        return
    with torch.random.fork_rng():
        torch.manual_seed(stream.initial_seed())
        for layer in network.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
