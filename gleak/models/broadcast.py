"""Networks loaded from and stored in parameter files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from gleak.artifacts.model import Model
from gleak.artifacts.reading import load_attributes, open_checked
from gleak.core.errors import ArtifactError
from gleak.core.lazy import torch
from gleak.core.registry import parse
from gleak.models.base import ModelSpec


def load_network(artifact: Model, where: str) -> torch.nn.Module:
    """Build the network of a parameter file, as `prepare_layers` returns it.

    Raises:
        ArtifactError: the parameters do not match the architecture.
    """
    spec: ModelSpec = parse("model", artifact.model)
    network = spec.build(tuple(map(int, artifact.input_shape)), artifact.classes)
    state = {
        name: torch.from_numpy(np.asarray(value))
        for name, value in {**artifact.parameters, **artifact.buffers}.items()
    }
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise ArtifactError(f"{where}: does not fit its architecture {spec}: {error}") from None
    return prepare_layers(network)


def prepare_layers(network: torch.nn.Module) -> torch.nn.Module:
    """Set a network to evaluation mode, and its layers to return new tensors; returns it.

    Layers that overwrite their inputs (``inplace=True``) would prevent that gradients are split
    layer by layer. No value changes.
    """
    for layer in network.modules():
        if getattr(layer, "inplace", False):
            setattr(layer, "inplace", False)  # noqa: B010
    return network.eval()


def read_model_spec(path: Path) -> ModelSpec:
    """Read the model spec of a parameter file, without reading parameters.

    Raises:
        ArtifactError: missing, damaged, or not a parameter file.
    """
    with open_checked(path, Model.format, Model.version) as file:
        spec: ModelSpec = parse("model", load_attributes(file, {"model": ""})["model"])
    return spec


def with_state(artifact: Model, network: torch.nn.Module) -> Model:
    """Return a copy of the artifact with the parameters and buffers of a network."""
    trained = {name for name, _ in network.named_parameters()}
    state = {name: value.cpu().numpy() for name, value in network.state_dict().items()}
    return replace(
        artifact,
        parameters={name: value for name, value in state.items() if name in trained},
        buffers={name: value for name, value in state.items() if name not in trained},
    )
