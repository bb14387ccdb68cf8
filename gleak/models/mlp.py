"""The perceptron for tables."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import Modality
from gleak.models.base import Activation
from gleak.models.perceptron import Perceptron


@register("mlp")
class MLP(Perceptron):
    """One hidden layer, on tables or flattened images."""

    source = "CPL section 4.1"
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "tabular"})

    hidden: int = parameter(
        64, "neurons of the hidden layer", source="ours: CPL names no width", ge=1
    )
    activation: Activation = parameter("sigmoid", "between the layers", source="CPL section 3.2")
