"""Checks that a network can be trained by clients and attacked, before any work is done."""

from __future__ import annotations

import torch
from torch import nn

from gleak.errors import FitError


def examine(network: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a network that does not give logits for samples of a shape.

    Args:
        network: left as it is.
        shape: of a sample.
        classes: number of logits of a sample.

    Raises:
        FitError: it does not take such samples, or gives something else.
    """
    try:
        with torch.no_grad():
            logits = network(torch.zeros(1, *shape))
    except RuntimeError as error:
        raise FitError(f"it does not take samples of shape {shape}: {error}") from None
    if logits.shape != (1, classes):
        raise FitError(f"it gives outputs of shape {tuple(logits.shape)}, expected {(1, classes)}")
