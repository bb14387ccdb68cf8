"""Folders that appear whole: filled under a temporary name, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gleak.core.errors import ArtifactError


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder beside ``path``, which takes that name when the block succeeds.

    A folder that is there is replaced then, and stays as it is if the block fails.

    Raises:
        ArtifactError: no permission or no space; nothing is left behind.
    """
    temporary, former = (
        path.with_name(f".{path.name}.{os.getpid()}.{what}") for what in ("partial", "former")
    )
    try:
        for left_by_a_killed_process in path.parent.glob(f".{path.name}.*.partial"):
            shutil.rmtree(left_by_a_killed_process)
        temporary.mkdir(parents=True)
        yield temporary
        if path.exists():
            path.rename(former)
        temporary.rename(path)
    except OSError as error:
        raise ArtifactError(f"{path}: could not be written ({error}); nothing was kept") from error
    finally:
        if former.exists() and not path.exists():
            former.rename(path)
        for leftover in (temporary, former):
            shutil.rmtree(leftover, ignore_errors=True)
