"""The fully connected network of the cocktail party attack."""

from __future__ import annotations

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Activation
from gleak.models.perceptron import Perceptron


@register("fc2")
class FC2(Perceptron):
    """FC-2: dense layer of 256, ReLU, dense layer, on flattened images."""

    source = "CPA section V-A"

    hidden: int = parameter(256, "neurons of the first layer", source="CPA section V-A", ge=1)
    activation: Activation = parameter("relu", "between the layers", source="CPA section V-A")
