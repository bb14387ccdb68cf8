"""Refusals: files that replace an artifact whose specs turn out to be incompatible in a job."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gleak.artifacts.reading import REFUSED
from gleak.artifacts.schema import attribute
from gleak.artifacts.store import Artifact
from gleak.core.errors import ArtifactError, IncompatibleError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Refused(Artifact):
    """A recorded refusal; reading it as any other artifact raises a `RefusedError` with its reason.

    Args:
        reason: why the artifact cannot be made, and what to change.
    """

    format: ClassVar[str] = REFUSED

    reason: str = attribute("")


@contextmanager
def refusing(*outputs: Path | str) -> Iterator[None]:
    """Write refusals in place of all outputs of a job if its specs are incompatible.

    Jobs that depend on it are refused for the same reason; all others are unaffected.

    Args:
        outputs: artifacts that the block writes; existing files are replaced.
    """
    try:
        yield
    except IncompatibleError as error:
        reason = " ".join(str(error).split())
        logger.warning("refused: %s", reason)
        for path in outputs:
            Refused(reason=reason).write(path)


def refusal_in(path: Path | str) -> str | None:
    """Return the reason of a refusal; None if the file is missing or another artifact."""
    try:
        return Refused.read(path).reason
    except ArtifactError:
        return None
