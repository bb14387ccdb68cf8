"""Parameters of a network in one vector, whose parts the network computes with.

An optimiser that acts on every value by itself then takes a step in a few operations, however many
parameters there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from gleak.core.lazy import torch
from gleak.models.parameters import Tensors


@dataclass(frozen=True)
class FlatParameters:
    """Places of parameters in vectors, one for each data type and device.

    Args:
        shapes: of the parameters by name, for each vector by its name.
    """

    shapes: Mapping[str, Mapping[str, torch.Size]]

    @classmethod
    def of(cls, parameters: Mapping[str, torch.Tensor]) -> Self:
        """Return the places of parameters in the order in which they are given."""
        shapes: dict[str, dict[str, torch.Size]] = {}
        for name, value in parameters.items():
            shapes.setdefault(f"{value.dtype} {value.device}", {})[name] = value.shape
        return cls(shapes)

    def flattened(self, values: Mapping[str, torch.Tensor]) -> Tensors:
        """Copy values by parameter, Shape (*shape), into the vectors, Shape (P) each."""
        return {
            vector: torch.cat([values[name].detach().reshape(-1) for name in shapes])
            for vector, shapes in self.shapes.items()
        }

    def whole(self, vectors: Mapping[str, torch.Tensor]) -> Tensors:
        """Return the parts of vectors as values by parameter, which share the memory."""
        values: Tensors = {}
        for vector, shapes in self.shapes.items():
            parts = vectors[vector].split([shape.numel() for shape in shapes.values()])
            pairs = zip(shapes.items(), parts, strict=True)
            values |= {name: part.view(shape) for (name, shape), part in pairs}
        return values


@contextmanager
def replaced_parameters(network: torch.nn.Module, values: Tensors) -> Iterator[None]:
    """Let a network compute with other parameters in the block; shared ones stay shared."""
    own = dict(network.named_parameters())
    others = {id(own[name]): value for name, value in values.items()}
    places = [
        (layer._parameters, name, value)
        for layer in network.modules()
        for name, value in layer._parameters.items()
        if id(value) in others
    ]
    for parameters, name, value in places:
        parameters[name] = others[id(value)]  # type: ignore[assignment]
    try:
        yield
    finally:
        for parameters, name, value in places:
            parameters[name] = value
