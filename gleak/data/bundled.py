"""Files that scikit-image and scikit-learn carry inside their packages.

Read as files: scikit-image's own functions download a file that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import IO

from gleak.core.errors import DataError


@contextmanager
def open_bundled(path: str) -> Iterator[IO[bytes]]:
    """Open a file by its place in a package, ``skimage/data/astronaut.png``.

    Raises:
        DataError: the installed package does not carry it.
    """
    package, _, place = path.partition("/")
    try:
        with files(package).joinpath(place).open("rb") as file:
            yield file
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error}); install scikit-image 0.26 and scikit-learn from "
            f"their wheels, which carry it"
        ) from error
