"""Activation functions by the name a spec gives them."""

from __future__ import annotations

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
}


def activation(name: str) -> nn.Module:
    """The activation of that name (see `gleak.models.base.Activation`)."""
    return ACTIVATIONS[name]()
