"""Atomic writing of files and folders: filled under a temporary name, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gleak.core.errors import ArtifactError


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path in the same folder and rename it to ``path`` when the block succeeds.

    The content is on the disk before it has its name, so that it is whole even after a power cut.

    Raises:
        ArtifactError: no permission or no space; the temporary file is removed.
    """
    with renamed(path) as temporary:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())


@contextmanager
def renamed(path: Path | str) -> Iterator[Path]:
    """Do as `atomic`, but without waiting for the disk, which can take tens of milliseconds.

    A killed process leaves no part of a file under its final name, but a power cut may: for formats
    whose reader notices that the end is missing.

    Raises:
        ArtifactError: no permission or no space; the temporary file is removed.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_partial(path)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise ArtifactError(
            f"{path}: could not be written ({error}); check the free space and the permissions of "
            "its folder, and run again"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def discard(path: Path) -> None:
    """Remove a file, if it exists, and temporary files left by killed jobs."""
    path.unlink(missing_ok=True)
    _remove_partial(path)


def _remove_partial(path: Path) -> None:
    for left_by_a_killed_job in path.parent.glob(f".{path.name}.*.partial"):
        left_by_a_killed_job.unlink()


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder and rename it to ``path`` when the block succeeds.

    An existing folder is then replaced; it is unchanged if the block fails.

    Raises:
        ArtifactError: no permission or no space; the temporary folder is removed.
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
        raise ArtifactError(
            f"{path}: could not be written ({error}); check the free space and the permissions of "
            "its folder, and run again"
        ) from error
    finally:
        if former.exists() and not path.exists():
            former.rename(path)
        for leftover in (temporary, former):
            shutil.rmtree(leftover, ignore_errors=True)
