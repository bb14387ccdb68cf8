"""Atomic writing of files and folders: filled under a temporary name, then renamed.

Several processes may write one path at a time: each fills a temporary folder of its own, and the
last one to finish has the final name. Only its owner can look into a temporary folder. It is
locked, so that one left by a killed process is told from one in use; where the file system has no
locks (some of clusters), it counts as left after a day.
"""

from __future__ import annotations

import fcntl
import logging
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EEXIST, ENOTEMPTY
from glob import escape
from pathlib import Path
from secrets import token_hex

from gleak.core.errors import ArtifactError

PRIVATE = 0o600
SUFFIX = ".partial"
FORMER = "former"
ABANDONED = 24 * 3600.0
log = logging.getLogger(__name__)
_held: set[tuple[int, int, int]] = set()
"""Locks of this process: its number, which a fork changes, and the file's device and inode."""


@contextmanager
def atomic(path: Path | str, *, private: bool = False, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path and rename it to ``path`` when the block succeeds.

    Args:
        path: the file, which is replaced if it exists.
        private: only its owner can read it; otherwise its permissions are those of a new file.
        durable: wait, some tens of milliseconds, until the content is on the disk, so that it is
            whole even after a power cut. Formats whose reader notices a missing end need not.

    Raises:
        ArtifactError: no permission or no space; the temporary file is removed.
    """
    path = Path(path)
    with _partial(path) as folder:
        temporary = folder / f"content{SUFFIX}"
        yield temporary
        if durable:
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
        if private:
            temporary.chmod(PRIVATE)
        temporary.replace(path)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder, which replaces ``path`` when the block succeeds.

    Raises:
        ArtifactError: no permission or no space, or another process has made the folder at the same
            time; the temporary folder is removed.
    """
    with _partial(path) as folder:
        temporary, former = folder / f"content{SUFFIX}", folder / FORMER
        temporary.mkdir()
        yield temporary
        try:
            if path.exists():
                path.rename(former)
            temporary.rename(path)
        except OSError as error:
            if error.errno not in (EEXIST, ENOTEMPTY):
                raise
            raise ArtifactError(
                f"{path}: another process has made it at the same time, and it is kept; remove it "
                "and run again, if it is not what you want"
            ) from None
        finally:
            _restore(former, path)


def discard(path: Path) -> None:
    """Remove a file, if it exists, and what killed jobs left of it.

    Raises:
        ArtifactError: no permission, or a folder is in its place.
    """
    with _explained(path, "removed"):
        path.unlink(missing_ok=True)
    _remove_abandoned(path)


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """Yield a new folder beside ``path``, which is removed at the end."""
    with _explained(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        folder, descriptor = _new_folder(path)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


@contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    """Raise an `OSError` of the block as an `ArtifactError` that says what could not be done."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"{path}: could not be {done} ({error}); check the free space and the permissions of "
            "its folder, and run again"
        ) from error


def _new_folder(path: Path) -> tuple[Path, int]:
    """Make and lock a temporary folder for ``path``; return it and the lock's file descriptor.

    Before it is locked another process may take it for abandoned and remove it; then make another.
    """
    while True:
        folder = path.with_name(f".{path.name}.{os.getpid()}.{token_hex(4)}{SUFFIX}")
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY)
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, folder):
                return folder, descriptor
            os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary folders of ``path`` that killed processes left."""
    for left in path.parent.glob(f".{escape(path.name)}.*{SUFFIX}"):
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY)
            try:
                if _is_abandoned(descriptor):
                    _restore(left / FORMER, path)
                    if left.is_dir():
                        shutil.rmtree(left)
                    else:
                        left.unlink()
            finally:
                os.close(descriptor)


def _is_abandoned(descriptor: int) -> bool:
    """Return True, and hold the lock, if no other process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return time.time() - os.fstat(descriptor).st_mtime > ABANDONED
    return True


def _restore(former: Path, path: Path) -> None:
    """Give a replaced folder its name again if nothing has taken its place."""
    if former.exists() and not path.exists():
        former.rename(path)


def _is_at(descriptor: int, path: Path) -> bool:
    """Return True if an open file or folder is the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock during the block; before it, wait for another process that holds it.

    It ends with the process, however that ends. Where the file system has no locks, nothing waits.

    Args:
        path: file for the lock, removed at the end.

    Raises:
        ArtifactError: no permission or no space, what is in its place is no file, or this process
            holds the lock already.
    """
    with _explained(path, "locked"):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(path)
    identity = _identity(descriptor)
    _held.add(identity)
    try:
        yield
    finally:
        _held.discard(identity)
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _locked(path: Path) -> int:
    """Return the file descriptor of a locked file, which is made if it is missing."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE)
        with ExitStack() as unless_taken:
            unless_taken.callback(os.close, descriptor)
            _lock(descriptor, path)
            if _is_at(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
                unless_taken.pop_all()
                return descriptor


def _lock(descriptor: int, path: Path) -> None:
    """Lock a file; before it, wait for another process that holds the lock, and name it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if _identity(descriptor) in _held:
            raise ArtifactError(
                f"{path}: this process does the same work already; let it end first"
            ) from None
        holder = os.read(descriptor, 1000).decode(errors="replace") or "another process"
        log.warning("%s: %s does the same work; waiting until it ends", path, holder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        log.info("%s: no locks on this file system (%s)", path, error)


def _identity(descriptor: int) -> tuple[int, int, int]:
    status = os.fstat(descriptor)
    return os.getpid(), status.st_dev, status.st_ino
