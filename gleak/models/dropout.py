"""Dropout, where a model's spec asks for it."""

from __future__ import annotations

from torch import nn


def dropout_layers(probability: float) -> list[nn.Module]:
    """The layer that zeroes each value with this probability; none for zero."""
    return [nn.Dropout(probability)] if probability else []
