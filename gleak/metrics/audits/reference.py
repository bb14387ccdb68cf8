"""Architectures with which a client compares what it received."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gleak.artifacts.model import Model
from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.lazy import torch
from gleak.core.registry import load, parse
from gleak.models.base import ModelSpec


@dataclass(frozen=True)
class Reference:
    """Shapes of the matrices and kernels of a known network, by parameter, in its order."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of_file(cls, path: Path) -> Reference:
        """Return the reference of a ``model.h5`` or ``parameters.h5``."""
        return cls(str(path), matrix_shapes(Model.read(path).parameters))

    @classmethod
    def of_architecture(cls, spec: ModelSpec, shape: tuple[int, ...], classes: int) -> Reference:
        """Return the reference of an architecture, for samples of a shape."""
        return cls.of_network(spec.build(shape, classes), str(spec))

    @classmethod
    def of_network(cls, network: torch.nn.Module, name: str) -> Reference:
        """Return the reference of a network that the client trusts."""
        shapes = {key: tuple(values.shape) for key, values in network.named_parameters()}
        return cls(name, {key: shape for key, shape in shapes.items() if len(shape) > 1})

    def added_layers(self, model: Model) -> list[str]:
        """Return the names of the layers of a model that the reference does not have.

        Raises:
            IncompatibleError: a layer of the reference is missing: another architecture.
        """
        added, wanted = [], list(self.shapes.items())
        for name, shape in matrix_shapes(model.parameters).items():
            if wanted and shape == wanted[0][1]:
                wanted.pop(0)
            else:
                added.append(name.removesuffix(".weight"))
        if wanted:
            name, shape = wanted[0]
            raise IncompatibleError(
                f"reference {self.name} is another architecture: its {name} of shape "
                f"{'x'.join(map(str, shape))} is not among the layers received, in their order; "
                "give the architecture that the server names, with its fields"
            )
        return added


def matrix_shapes(parameters: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters that are matrices or kernels."""
    return {name: values.shape for name, values in parameters.items() if values.ndim > 1}


def read_reference(text: str, model: Model) -> Reference:
    """Return the reference that a file or the spec of an architecture names.

    Raises:
        SpecError: neither a file nor an architecture.
        IncompatibleError: an architecture that does not take the model's samples.
        ArtifactError: the file is damaged, or no model.
    """
    path = Path(text)
    if path.suffix == ".h5" or path.is_file():
        return Reference.of_file(path)
    if text.partition("+")[0] not in load("model"):
        raise SpecError(
            f"reference {text}: neither a file nor an architecture; gleak list model has names"
        )
    spec: ModelSpec = parse("model", text)
    shape = tuple(map(int, model.input_shape))
    spec.check(model.modality, shape)  # type: ignore[arg-type]
    return Reference.of_architecture(spec, shape, model.classes)
