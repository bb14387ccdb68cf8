"""What stands in place of an artifact whose specs turn out not to fit together while it is made."""

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
    """A refusal; reading it as any other artifact raises its reason as a `RefusedError`.

    Args:
        reason: why there is no such artifact, and what to change.
    """

    format: ClassVar[str] = REFUSED

    reason: str = attribute("")


@contextmanager
def refusing(*outputs: Path | str) -> Iterator[None]:
    """Write refusals in place of all outputs of a job if its specs do not fit together.

    What depends on the job is refused for the same reason, and everything else goes on.

    Args:
        outputs: the artifacts that the block makes; what it has made of them is replaced.
    """
    try:
        yield
    except IncompatibleError as error:
        reason = " ".join(str(error).split())
        logger.warning("refused: %s", reason)
        for path in outputs:
            Refused(reason=reason).write(path)


def refusal_in(path: Path | str) -> str | None:
    """The reason that stands in place of an artifact; None for any other or no file."""
    try:
        return Refused.read(path).reason
    except ArtifactError:
        return None
