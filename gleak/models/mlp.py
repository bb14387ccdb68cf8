"""The perceptron for tables."""

from __future__ import annotations

from typing import ClassVar

from gleak.data.base import Modality
from gleak.models.base import Activation
from gleak.models.perceptron import Perceptron
from gleak.registry import register
from gleak.spec import knob


@register("mlp")
class MLP(Perceptron):
    """One hidden layer, on tables or flattened images."""

    source = "CPL section 4.1"
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "tabular"})

    hidden: int = knob(64, "neurons of the hidden layer", source="ours: CPL names no width", ge=1)
    activation: Activation = knob("sigmoid", "between the layers", source="CPL section 3.2")
