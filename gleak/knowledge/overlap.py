"""Whether victims' samples are among those that knowledge was trained on, by their fingerprints.

A fingerprint is a hash of a sample's 8-bit intensities. It tells exact copies at the same
resolution; a sample that was cropped or stored with losses once more has another.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import numpy as np

from gleak.artifacts.knowledge import Knowledge
from gleak.artifacts.private import Private
from gleak.core.errors import IncompatibleError

BYTES = 8
BRIGHTEST = 255


def fingerprints(images: np.ndarray) -> np.ndarray:
    """A number for each image, equal for equal images.

    Args:
        images: Shape (M, ...), 8-bit intensities, or intensities in [0, 1].

    Returns:
        Shape (M), uint64.
    """
    if images.dtype != np.uint8:
        images = np.rint(images * BRIGHTEST).astype(np.uint8)
    digests = [blake2b(image.tobytes(), digest_size=BYTES).digest() for image in images]
    return np.array([int.from_bytes(digest, "little") for digest in digests], dtype=np.uint64)


def check_disjoint(private: Private, where: str, knowledge: Iterable[Path]) -> None:
    """Refuse victims whose samples an attacker's knowledge was trained on.

    Args:
        private: the truth.
        where: its file, for the error.
        knowledge: files of what the attack was given.

    Raises:
        IncompatibleError: names the file of the knowledge and the first such victim.
        ArtifactError: a bad file.
    """
    samples = private.inputs.reshape(-1, *private.inputs.shape[2:])
    for path in knowledge:
        public = Knowledge.read(path, only=())
        known = np.isin(fingerprints(samples), public.fingerprints)
        if known.any():
            victim = int(known.argmax()) // private.inputs.shape[1]
            raise IncompatibleError(
                f"{path}: trained on {public.dataset}, which holds {int(known.sum())} of the "
                f"{len(samples)} samples in {where}, victim {victim}'s first; nothing is measured "
                "on samples that the attacker knows: choose another public dataset or other victims"
            )
