"""Files of weights that a user has put where ``torch.hub`` keeps them: read as tensors, checked."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from hashlib import file_digest
from pathlib import Path

import torch
from torch import Tensor

from gleak.core.errors import ArtifactError, nearest
from gleak.runtime.checkpoints import checkpoint_path, fetch_command

NAMED_DIGEST = re.compile(r"-([0-9a-f]{8,})\.")
OTHER = "choose the network it is of, or another file"
State = Mapping[str, Tensor]
log = logging.getLogger(__name__)


def read_weights(name: str) -> tuple[Path, State]:
    """Where a file is, and the tensors in it by their names; no code in it can run.

    Args:
        name: of a file where ``torch.hub`` keeps them.

    Raises:
        ArtifactError: the file is missing, or holds other things than tensors.
    """
    path = checkpoint_path(name)
    if not path.is_file():
        raise ArtifactError(
            f"{path} is missing; put the file there, or set TORCH_HOME to the folder that holds "
            f"hub/checkpoints/{name}; if it is torchvision's, fetch it with: {fetch_command(name)}"
        )
    _log_digest(path)
    return path, _read(path)


def check_weights(path: Path, found: State, own: State, kept: Collection[str] = ()) -> None:
    """Every tensor of a network is in a file, and no other, whole and finite.

    Args:
        path: of the file.
        found: what is in it.
        own: the network's.
        kept: names of the network's own that need not be there, or not in this shape.

    Raises:
        ArtifactError: names the file and the tensor, and the nearest of those without a match.
    """
    for name in {**own, **found}:
        theirs, ours = (tuple(s[name].shape) if name in s else None for s in (found, own))
        if theirs != ours and name not in kept:
            others = own.keys() - found.keys() if ours is None else found.keys() - own.keys()
            raise ArtifactError(
                f"{path}: {name} has shape {theirs}, but in the network it has {ours}; "
                f"{_hint(name, others) if None in (theirs, ours) else ''}{OTHER}"
            )
        if name in found and not found[name].isfinite().all():
            raise ArtifactError(f"{path}: {name} holds values that are NaN or infinite")


def _hint(name: str, others: Collection[str]) -> str:
    """The nearest of the names that one side has alone, where there are any."""
    return f"{nearest(name, others)}; " if others else ""


def _log_digest(path: Path) -> None:
    """Names as ``torch.hub`` gives them end in the first digits."""
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    log.info("%s: sha256 %s", path, digest)
    named = NAMED_DIGEST.search(path.name)
    if named and not digest.startswith(named[1]):
        log.warning("%s: not the file it is named after, whose sha256 begins %s", path, named[1])


def _read(path: Path) -> State:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged, a pickle raises of any kind
        kind = type(error).__name__  # torch's text tells how to run what the file holds
        raise ArtifactError(f"{path}: not a whole file of tensors alone ({kind})") from None
    if not isinstance(found, Mapping) or not all(torch.is_tensor(v) for v in found.values()):
        raise ArtifactError(f"{path}: not a mapping of names to tensors (a state dict)")
    return dict(found)
