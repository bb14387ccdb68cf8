"""Dropout, where a model's spec asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


def dropout_layers(probability: float) -> list[nn.Module]:
    """The layer that zeroes each value with this probability; none for zero."""
    return [nn.Dropout(probability)] if probability else []


@contextmanager
def drawing_masks(model: nn.Module) -> Iterator[None]:
    """Let dropout draw its masks in the block, as in training; other layers stay in their mode."""
    resting = [
        layer for layer in model.modules() if isinstance(layer, nn.Dropout) and not layer.training
    ]
    for layer in resting:
        layer.train()
    try:
        yield
    finally:
        for layer in resting:
            layer.eval()
