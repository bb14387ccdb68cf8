"""Networks loaded from ``knowledge.h5``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gleak.artifacts.knowledge import Knowledge
from gleak.core.errors import ArtifactError
from gleak.core.lazy import torch
from gleak.core.registry import parse
from gleak.knowledge.base import KnowledgeSpec


def load_knowledge(path: Path, shape: tuple[int, ...]) -> tuple[str, torch.nn.Module]:
    """Load a network from ``knowledge.h5``, in evaluation mode.

    Args:
        path: ``knowledge.h5``.
        shape: of the samples to use it for.

    Returns:
        The registered name of its spec, and the network.

    Raises:
        ArtifactError: the file is bad, is for samples of another shape, or its parameters do not
            match its spec.
    """
    artifact = Knowledge.read(path)
    trained = tuple(map(int, artifact.input_shape))
    if trained != shape:
        raise ArtifactError(f"{path}: for samples of shape {trained}, but these have {shape}")
    spec: KnowledgeSpec = parse("knowledge", artifact.knowledge)
    network = spec.build(trained, artifact.classes)
    state = {
        name: torch.from_numpy(np.asarray(value))
        for name, value in {**artifact.parameters, **artifact.buffers}.items()
    }
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise ArtifactError(f"{path}: does not fit its architecture {spec}: {error}") from None
    return spec.name, network.float().eval()
