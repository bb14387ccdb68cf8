"""Weight files in the cache of ``torch.hub``, downloaded on request only and checked when read."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from gleak.core.errors import ArtifactError, nearest
from gleak.runtime.user_cache import check_home, exists, with_home

if TYPE_CHECKING:
    from torch import Tensor

PUBLISHED = "https://download.pytorch.org/models"
NAMED_DIGEST = re.compile(r"-([0-9a-f]{8,})\.")
OTHER = "choose the network these weights belong to, or another file"
State = Mapping[str, "Tensor"]
log = logging.getLogger(__name__)


def checkpoint_path(name: str) -> Path:
    """Return the path of a file in the cache of ``torch.hub``; it need not exist."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("TORCH_HOME", f"{cache_home}/torch")
    return with_home(home) / "hub" / "checkpoints" / name


def is_cached(name: str) -> bool:
    """Return whether a file is in the cache of ``torch.hub``."""
    return exists(checkpoint_path(name))


@dataclass(frozen=True)
class PublishedWeights:
    """One of torchvision's weight files.

    Args:
        name: file name, which ends with the first digits of its digest.
        size: in bytes.
        digest: SHA-256.
    """

    name: str
    size: int
    digest: str

    @property
    def address(self) -> str:
        """Address from which the file is downloaded."""
        return f"{PUBLISHED}/{self.name}"

    def __str__(self) -> str:
        return f"{self.address} ({self.size / 1e6:.1f} MB, sha256 {self.digest})"

    def download(self) -> Path:
        """Download the file to the cache of ``torch.hub`` unless it is there, and check its digest.

        Raises:
            ArtifactError: no connection, no permission, or another digest; no file remains.
        """
        from torch.hub import download_url_to_file

        path = check_home(checkpoint_path(self.name))
        if not exists(path):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                download_url_to_file(self.address, str(path), hash_prefix=self.digest)
            except (OSError, RuntimeError) as error:
                raise ArtifactError(
                    f"{self.address} cannot be downloaded ({error}); download it on another "
                    f"machine and put it at {path}"
                ) from None
        return path


def fetch_command(name: str) -> str:
    """Return a shell command that downloads one of torchvision's files to that cache."""
    return (
        'python -c "from torch.hub import load_state_dict_from_url as fetch; '
        f"fetch('{PUBLISHED}/{name}', check_hash=True)\""
    )


def read_weights(name: str) -> tuple[Path, State]:
    """Read a file of tensors; code in the file cannot run.

    Args:
        name: name of a file in the cache of ``torch.hub``.

    Returns:
        Path of the file, and its tensors by name.

    Raises:
        ArtifactError: the file is missing, or holds anything but tensors.
    """
    path = checkpoint_path(name)
    if not exists(path):
        raise ArtifactError(
            f"{path} is missing; put the file there, or set TORCH_HOME to the folder that contains "
            f"hub/checkpoints/{name}; fetch a file of torchvision with: {fetch_command(name)}"
        )
    _log_digest(path)
    return path, _read(path)


def check_weights(path: Path, found: State, own: State, kept: Collection[str] = ()) -> None:
    """Check that a file holds all tensors of a network, and no others, with finite values.

    Args:
        path: path of the file.
        found: tensors in the file.
        own: tensors of the network.
        kept: names of the network's tensors that may be missing or of another shape.

    Raises:
        ArtifactError: names the file, the tensor and the nearest unmatched name.
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
            raise ArtifactError(f"{path}: {name} contains values that are NaN or infinite")


def _hint(name: str, others: Collection[str]) -> str:
    """Suggest the nearest of the unmatched names, if there are any."""
    return f"{nearest(name, others)}; " if others else ""


def _log_digest(path: Path) -> None:
    """Log the SHA-256 digest; names given by ``torch.hub`` end with its first digits."""
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    log.info("%s: sha256 %s", path, digest)
    named = NAMED_DIGEST.search(path.name)
    if named and not digest.startswith(named[1]):
        log.warning("%s: the SHA-256 digest should begin with %s, by its name", path, named[1])


def _read(path: Path) -> State:
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle raises errors of any type
        kind = type(error).__name__  # torch's message explains how to run the file's code
        raise ArtifactError(
            f"{path}: truncated, or contains anything but tensors ({kind})"
        ) from None
    if not isinstance(found, Mapping) or not all(torch.is_tensor(v) for v in found.values()):
        raise ArtifactError(f"{path}: not a mapping of names to tensors (a state dict)")
    return dict(found)
