"""The layer of a network that gives the logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gleak.errors import FitError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

WEIGHT, BIAS = ".weight", ".bias"


def classifier_parameters(
    parameters: Mapping[str, np.ndarray] | Mapping[str, Tensor], classes: int
) -> tuple[str, str]:
    """Names of weight and bias of the last dense layer with one output for each class.

    Args:
        parameters: of a network, by name, in the order of its layers.
        classes: number of outputs.

    Raises:
        FitError: no such layer has a bias.
    """
    shapes = {name: tuple(value.shape) for name, value in parameters.items()}
    layers = [
        name.removesuffix(WEIGHT)
        for name, shape in shapes.items()
        if name.endswith(WEIGHT) and len(shape) == 2 and shape[0] == classes
    ]
    biased = [layer for layer in layers if shapes.get(f"{layer}{BIAS}") == (classes,)]
    if not biased:
        raise FitError(f"it has no dense layer with {classes} outputs and a bias")
    return f"{biased[-1]}{WEIGHT}", f"{biased[-1]}{BIAS}"
