"""Between a network and the artifact that carries its parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from gleak.artifacts.model import Model
from gleak.artifacts.reading import load_attributes, open_checked
from gleak.core.errors import ArtifactError
from gleak.core.registry import parse
from gleak.models.base import ModelSpec


def load_network(artifact: Model, where: str) -> nn.Module:
    """Build the network an artifact describes, with its parameters, in evaluation mode.

    Layers that may overwrite their inputs (``inplace=True``) are set to give new tensors, which
    changes no value and lets gradients be split layer by layer.

    Args:
        artifact: a model or crafted parameters.
        where: its file, for errors.

    Raises:
        ArtifactError: parameters that are not those of the architecture.
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
    for layer in network.modules():
        if getattr(layer, "inplace", False):
            setattr(layer, "inplace", False)  # noqa: B010
    return network.eval()


def architecture(path: Path) -> ModelSpec:
    """Of the network whose parameters a file holds; these are not read.

    Raises:
        ArtifactError: missing, damaged, or not a file of parameters.
    """
    with open_checked(path, Model.format, Model.version) as file:
        spec: ModelSpec = parse("model", load_attributes(file, {"model": ""})["model"])
    return spec


def with_state(artifact: Model, network: nn.Module) -> Model:
    """The artifact with the parameters the network holds now, and the rest of its state."""
    trained = {name for name, _ in network.named_parameters()}
    state = {name: value.cpu().numpy() for name, value in network.state_dict().items()}
    return replace(
        artifact,
        parameters={name: value for name, value in state.items() if name in trained},
        buffers={name: value for name, value in state.items() if name not in trained},
    )
