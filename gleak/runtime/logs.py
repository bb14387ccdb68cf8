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
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gleak.artifacts.atomic import held
from gleak.core.errors import DamagedError, GleakError

MORE_MEMORY = (
    "use a machine with more, or on a cluster ask for more: --set-resources RULE:mem_mb=..., or "
    "mem_mb under set-resources in the profile"
)
FORMAT = "%(asctime)s %(levelname)s %(message)s"
NOTES = "damaged.txt"


@contextmanager
def log_to(path: Path | str | None, results: Path | str | None = None) -> Iterator[None]:
    """Send all logging and warnings to a file and to stderr while the block runs.

    If another job with this log is running, left by a workflow that was killed, its end is awaited.
    Errors that gleak raises on purpose are logged as one line, as is running out of memory; any
    other error with its traceback. A damaged result is noted, so that the next run makes it again.

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
        with ExitStack() as stack:
            stack.enter_context(_handling(logging.StreamHandler(sys.stderr)))
            if path is not None:
                stack.enter_context(held(Path(path).with_name(f".{Path(path).name}.lock")))
                file = logging.FileHandler(path, mode="w", encoding="utf-8")
                stack.enter_context(_handling(file))
            stack.enter_context(_reporting(results))
            yield
    finally:
        logging.captureWarnings(False)
        root.setLevel(level)


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
    except (GleakError, MemoryError) as error:
        message = str(error)
        if isinstance(error, MemoryError):
            message = f"out of memory ({error}); {MORE_MEMORY}"
        elif isinstance(error, DamagedError) and results is not None:
            message = note_damage(error, Path(results))
        logging.error("%s", message)
        raise SystemExit(1) from None
    except Exception:
        logging.exception("unexpected error:")
        raise


def note_damage(error: DamagedError, results: Path) -> str:
    """Note a damaged file if it is one of the results, and return the message to log."""
    path = error.path
    if not (path.exists() and _is_below(path, results)):
        return str(error)
    try:
        with (results / NOTES).open("a") as notes:
            notes.write(f"{path.resolve().relative_to(results.resolve())}\n")
    except OSError:
        return str(error)
    return f"{path}: {error.fault}; it is made again by: snakemake {shlex.quote(str(path))}"


def rename_damaged(results: Path) -> list[Path]:
    """Rename the noted files, so that they are made again; return their former names."""
    notes, renamed = results / NOTES, []
    with suppress(FileNotFoundError):
        for line in dict.fromkeys(notes.read_text().splitlines()):
            path = results / line
            if path.is_file() and _is_below(path, results):
                path.replace(path.with_name(f"{path.name}.damaged"))
                renamed.append(path)
        notes.unlink()
    return renamed


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
