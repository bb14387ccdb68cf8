"""Networks loaded from ``knowledge.h5``, and checks that none was trained on the victims' samples.

Samples are compared by fingerprints, hashes of their 8-bit intensities. These detect exact copies
at the same resolution; a sample that was cropped or compressed again has another fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import numpy as np

from gleak.artifacts.model import Knowledge
from gleak.artifacts.private import Private
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import parse
from gleak.knowledge.base import KnowledgeSpec


def load_knowledge(path: Path, shape: tuple[int, ...]) -> tuple[str, torch.nn.Module]:
    """Load the name of a spec, and its network in evaluation mode, from ``knowledge.h5``.

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
    stored = {**artifact.parameters, **artifact.buffers}
    state = {name: torch.from_numpy(np.asarray(value)) for name, value in stored.items()}
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise ArtifactError(f"{path}: does not fit its architecture {spec}: {error}") from None
    return spec.name, network.float().eval()


def fingerprints(images: np.ndarray) -> np.ndarray:
    """Compute a hash of each image, of 8-bit intensities or intensities in [0, 1].

    Shapes (M, ...) to (M), uint64.
    """
    if images.dtype != np.uint8:
        images = np.rint(images * 255).astype(np.uint8)
    digests = [blake2b(image.tobytes(), digest_size=8).digest() for image in images]
    return np.array([int.from_bytes(digest, "little") for digest in digests], dtype=np.uint64)


def check_disjoint(private: Private, where: str, knowledge: Iterable[Path]) -> None:
    """Check that an attacker's knowledge was not trained on the victims' samples.

    Raises:
        IncompatibleError: names the knowledge file and the first such victim.
        ArtifactError: a file is bad.
    """
    samples = private.inputs.reshape(-1, *private.inputs.shape[2:])
    for path in knowledge:
        public = Knowledge.read(path, only=())
        known = np.isin(fingerprints(samples), public.fingerprints)
        if known.any():
            victim = int(known.argmax()) // private.inputs.shape[1]
            raise IncompatibleError(
                f"{path}: trained on {public.dataset}, which contains {int(known.sum())} of the "
                f"{len(samples)} samples in {where}, first of victim {victim}; an attack must not "
                "be scored on samples that the attacker knows: choose another public dataset or "
                "other victims"
            )
