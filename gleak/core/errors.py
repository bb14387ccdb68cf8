"""User-facing errors: each states what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

AGAIN = "delete it and run again"


class GleakError(Exception):
    """Base of all errors that gleak raises on purpose."""


class SpecError(GleakError):
    """Invalid spec string, path, study or configuration."""


class IncompatibleError(GleakError):
    """Specs that are valid individually but do not fit together (an image model on a table)."""


class RefusedError(IncompatibleError):
    """Refusal recorded in an input by the job that should have made it, with its reason."""


class ArtifactError(GleakError):
    """File that is missing, truncated, foreign, of another version, or contains bad values."""


class DamagedError(ArtifactError):
    """File made by gleak that is invalid or damaged; to be made again."""

    def __init__(self, path: Path | str, fault: str) -> None:
        super().__init__(f"{path}: {fault}; {AGAIN}")
        self.path, self.fault = Path(path), fault


class ExposedError(GleakError):
    """An update reveals more than the limit that its user has set."""


class StoppedError(GleakError):
    """A job was asked to stop (a time limit, a preemption, Ctrl-C)."""


class DataError(GleakError):
    """Dataset that is missing or invalid."""


class DeviceError(GleakError):
    """Operation that would fail on a GPU, found in a rehearsal without one."""


class MissingExtraError(GleakError, ImportError):
    """Package that is not installed, as it belongs to an optional extra of gleak."""


def nearest(name: object, valid: Iterable[object]) -> str:
    """Return the end of an error about an unknown name: the nearest valid name, then all."""
    options = sorted(map(str, valid))
    close = get_close_matches(str(name), options, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return f"{guess}valid: {', '.join(options) or 'none'}"


@contextmanager
def error_context(place: str) -> Iterator[None]:
    """Prefix the errors about specs that are raised in the block with a place."""
    try:
        yield
    except (SpecError, IncompatibleError) as error:
        raise type(error)(f"{place}: {error}") from None


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Import packages of an extra of pyproject.toml in the block.

    Raises:
        MissingExtraError: a package cannot be imported; says how to install it.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"{error}; run: pip install 'gleak[{extra}]'") from error
