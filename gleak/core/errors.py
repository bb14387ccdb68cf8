"""The errors a user meets: each says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

AGAIN = "delete it and run again"


class GleakError(Exception):
    """Base of every error that gleak raises on purpose."""


class SpecError(GleakError):
    """A spec string, path, study or configuration that cannot be used as written."""


class IncompatibleError(GleakError):
    """Specs that are valid alone and do not fit together (an image model on a table, say)."""


class RefusedError(IncompatibleError):
    """What is to be read was refused by the job that should have made it; carries its reason."""


class ArtifactError(GleakError):
    """A file that is missing, truncated, foreign, of another version, or holds bad values."""


class DamagedError(ArtifactError):
    """A file that gleak made and that is not, or no longer, what it should be; to be made again.

    Args:
        path: of the file.
        fault: what is wrong with it.
    """

    def __init__(self, path: Path | str, fault: str) -> None:
        super().__init__(f"{path}: {fault}; {AGAIN}")
        self.path, self.fault = Path(path), fault


class StoppedError(GleakError):
    """A job was asked to stop (a time limit, a preemption, Ctrl-C)."""


class DataError(GleakError):
    """A dataset that is not where it should be, or not as it should be."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """The hint that ends an error about an unknown name: the nearest valid one, then all."""
    options = sorted(valid)
    close = get_close_matches(name, options, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return f"{guess}valid: {', '.join(options) or 'none'}"


@contextmanager
def error_context(place: str) -> Iterator[None]:
    """Put a place before the errors about specs that are raised in the block."""
    try:
        yield
    except (SpecError, IncompatibleError) as error:
        raise type(error)(f"{place}: {error}") from None
