"""Paths in the user's cache folder, which a system account or a container may not have."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gleak.core.errors import ArtifactError


def cache_path(name: str) -> Path:
    """Return the path of one of gleak's files in the user's cache folder; it need not exist."""
    return with_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "gleak" / name


def with_home(path: str) -> Path:
    """Replace ``~`` by the home folder; it stays where the user has none, as in torch."""
    with suppress(RuntimeError):
        return Path(path).expanduser()
    return Path(path)


def check_home(path: Path) -> Path:
    """Return a path where a file is to be written; refuse one that still has its ``~``."""
    if path.parts[0] == "~":
        raise ArtifactError(
            f"{path} cannot be written: this user has no home folder; set HOME, or XDG_CACHE_HOME "
            "to a folder for caches"
        )
    return path


def exists(path: Path) -> bool:
    """Return whether a path is a file, and in a folder that the user may enter."""
    with suppress(OSError):
        return path.is_file()
    return False


def absence(path: Path) -> str:
    """Return what is wrong with a path that is not a file."""
    try:
        if path.exists():
            return "is a folder" if path.is_dir() else "is not a regular file"
        return "is a link to nothing" if path.is_symlink() else "is missing"
    except OSError as error:
        return f"cannot be found ({error.strerror})"
