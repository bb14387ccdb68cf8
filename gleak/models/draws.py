"""Layers that draw random numbers where clients compute gradients, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from gleak.models.variational import GaussianSample

STRENGTHS: dict[type[nn.Module], str] = {nn.Dropout: "p", GaussianSample: "spread"}
"""Their kinds, and the attribute that is zero where what is drawn changes nothing."""


@contextmanager
def drawing(network: nn.Module) -> Iterator[None]:
    """Let these layers draw in the block, as in training; all others stay in their mode."""
    resting = [layer for layer, _ in _drawing_layers(network) if not layer.training]
    for layer in resting:
        layer.train()
    try:
        yield
    finally:
        for layer in resting:
            layer.eval()


@contextmanager
def unmoved_by_draws(network: nn.Module) -> Iterator[None]:
    """Let what these layers draw in the block change nothing, whatever their mode."""
    before = [(layer, name, getattr(layer, name)) for layer, name in _drawing_layers(network)]
    for layer, name, _ in before:
        setattr(layer, name, 0.0)
    try:
        yield
    finally:
        for layer, name, strength in before:
            setattr(layer, name, strength)


def _drawing_layers(network: nn.Module) -> list[tuple[nn.Module, str]]:
    """The layers, each with the name of its strength."""
    return [
        (layer, name)
        for layer in network.modules()
        for kind, name in STRENGTHS.items()
        if isinstance(layer, kind)
    ]
