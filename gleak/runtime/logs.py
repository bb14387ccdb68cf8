"""The log of a job: plain lines to a file and to stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gleak.errors import GleakError

FORMAT = "%(asctime)s %(levelname)s %(message)s"


@contextmanager
def log_to(path: Path | str | None) -> Iterator[None]:
    """Send all logging and warnings to a file and to stderr while the block runs.

    An error that gleak raises on purpose becomes one line in both; any other is logged with its
    traceback and raised on.

    Args:
        path: the log file, made anew; None for stderr alone.

    Raises:
        SystemExit: with code 1, in place of a `GleakError`.
    """
    handlers = _handlers(path)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    for handler in handlers:
        root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        with _reporting():
            yield
    finally:
        logging.captureWarnings(False)
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()


@contextmanager
def _reporting() -> Iterator[None]:
    try:
        yield
    except GleakError as error:
        logging.error("%s", error)
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
