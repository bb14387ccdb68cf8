"""Job logs, and the list of damaged results.

A job that finds a result damaged notes it and fails; the next run makes the file again. The file
stays in place until then: without it, jobs that need it would end the whole run and not only the
work that depends on the file.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gleak.artifacts.atomic import held
from gleak.core.errors import DamagedError, GleakError

MORE_MEMORY = (
    "use a machine with more, or on a cluster ask for more: --set-resources RULE:mem_mb=..., or "
    "mem_mb under set-resources in the profile"
)
FORMAT = "%(asctime)s %(levelname)s %(message)s"


@contextmanager
def log_to(path: Path | str | None, results: Path | str | None = None) -> Iterator[None]:
    """Send all logging and warnings to a file and to stderr while the block runs.

    Two jobs with one log make the same results: if another one is running, its end is awaited. Such
    a job is left by a workflow that was killed (SIGKILL), on a cluster for example.

    Errors that gleak raises on purpose are logged as one line, as is running out of memory. Any
    other error is logged with its traceback and raised. A damaged result is noted, so that the next
    run makes it again.

    Args:
        path: log file, overwritten; None for stderr alone.
        results: folder of the results; None if nothing is to be noted.

    Raises:
        SystemExit: with code 1, in place of a `GleakError` or a `MemoryError`.
    """
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        with _handling(logging.StreamHandler(sys.stderr)), _file_of(path), _reporting(results):
            yield
    finally:
        logging.captureWarnings(False)
        root.setLevel(level)


@contextmanager
def _file_of(path: Path | str | None) -> Iterator[None]:
    """Log to a file, if there is one, while no other job does."""
    if path is None:
        yield
        return
    path = Path(path)
    with (
        held(path.with_name(f".{path.name}.lock")),
        _handling(logging.FileHandler(path, mode="w", encoding="utf-8")),
    ):
        yield


@contextmanager
def _handling(handler: logging.Handler) -> Iterator[None]:
    """Add a handler to the root logger while the block runs."""
    handler.setFormatter(logging.Formatter(FORMAT))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


@contextmanager
def _reporting(results: Path | str | None) -> Iterator[None]:
    try:
        yield
    except DamagedError as error:
        logging.error("%s", error if results is None else note_damage(error, Path(results)))
        raise SystemExit(1) from None
    except GleakError as error:
        logging.error("%s", error)
        raise SystemExit(1) from None
    except MemoryError as error:
        logging.error("out of memory (%s); %s", error, MORE_MEMORY)
        raise SystemExit(1) from None
    except Exception:
        logging.exception("unexpected error:")
        raise


NOTES = "damaged.txt"
SUFFIX = ".damaged"


def note_damage(error: DamagedError, results: Path) -> str:
    """Note a damaged file if it is one of the results, and return the message to log.

    Args:
        error: names the file.
        results: folder of the results.
    """
    path = error.path
    if not (path.exists() and _is_below(path, results)):
        return str(error)
    try:
        with (results / NOTES).open("a") as notes:
            notes.write(f"{path.resolve().relative_to(results.resolve())}\n")
    except OSError:
        return str(error)
    return f"{path}: {error.fault}; it is made again by: snakemake {shlex.quote(str(path))}"


def quarantine(results: Path) -> list[Path]:
    """Rename the noted files, so that they are missing and are made again.

    Args:
        results: folder of the results.

    Returns:
        The files, under their former names.
    """
    notes, found = results / NOTES, []
    with suppress(FileNotFoundError):
        for line in dict.fromkeys(notes.read_text().splitlines()):
            path = results / line
            if path.is_file() and _is_below(path, results):
                path.replace(path.with_name(f"{path.name}{SUFFIX}"))
                found.append(path)
        notes.unlink()
    return found


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
