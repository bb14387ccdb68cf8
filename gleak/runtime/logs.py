"""The log of a job: plain lines to a file and to stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gleak.core.errors import DamagedError, GleakError
from gleak.runtime.damage import note_damage

MORE_MEMORY = (
    "use a machine with more, or on a cluster ask for more: --set-resources RULE:mem_mb=..., or "
    "mem_mb under set-resources in the profile"
)
FORMAT = "%(asctime)s %(levelname)s %(message)s"


@contextmanager
def log_to(path: Path | str | None, results: Path | str | None = None) -> Iterator[None]:
    """Send all logging and warnings to a file and to stderr while the block runs.

    An error that gleak raises on purpose becomes one line in both, and so does memory that runs
    out; any other is logged with its traceback and raised on. A damaged file of the results is
    noted, so that the next run makes it again.

    Args:
        path: the log file, made anew; None for stderr alone.
        results: the folder of the results; None where nothing is to be noted.

    Raises:
        SystemExit: with code 1, in place of a `GleakError` or a `MemoryError`.
    """
    handlers = _handlers(path)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    for handler in handlers:
        root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        with _reporting(results):
            yield
    finally:
        logging.captureWarnings(False)
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
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
        logging.exception("stopped by an error that gleak does not expect:")
        raise


def _handlers(path: Path | str | None) -> list[logging.Handler]:
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path, mode="w", encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(logging.Formatter(FORMAT))
    return handlers
