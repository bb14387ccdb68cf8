"""Files of captures, ``<data_dir>/captures/<name>/``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gleak.core.errors import ArtifactError, DataError, nearest

MODEL = "model.h5"
UPDATE = "update.h5"
PRIVATE = "private.h5"
IMPORT_AGAIN = "use the command printed by gleak import, or import it again"


@dataclass(frozen=True)
class Captures:
    """All captures in a data folder.

    Args:
        data_dir: data folder.
    """

    data_dir: Path

    @property
    def root(self) -> Path:
        """Folder that contains all captures."""
        return self.data_dir / "captures"

    def folder(self, name: str) -> Path:
        """Return the folder of a capture, which need not exist."""
        return self.root / name

    def file(self, name: str, file: str) -> Path:
        """Return the path of an existing file of a capture.

        Args:
            name: name of the capture.
            file: `MODEL`, `UPDATE` or `PRIVATE`.

        Raises:
            DataError: there is no such capture, or it was imported without the true samples.
        """
        folder = self.folder(name)
        if not folder.is_dir():
            known = [path.name for path in self.root.glob("[!.]*") if path.is_dir()]
            raise DataError(
                f"{folder}: no such capture; {nearest(name, known)}; create it with gleak import "
                f"{name}, or set data_dir in config.yaml (or --config data_dir=...) to its location"
            )
        path = folder / file
        if not path.is_file():
            raise DataError(
                f"{path}: capture {name!r} has no true samples, which scores and grants need; "
                "request an attack's reconstruction.h5, or import the samples: gleak import "
                f"{name} --truth ... --replace"
                if file == PRIVATE
                else f"{path} is missing; import the capture again: gleak import {name} --replace"
            )
        return path


def check_field(expected: object, actual: object, field: str, captured: Path) -> None:
    """Raise if a field of a capture differs from the client's spec.

    Args:
        expected: value in the spec.
        actual: value in the file.
        field: name of the field.
        captured: path of the file.

    Raises:
        ArtifactError: the values differ.
    """
    if expected != actual:
        raise ArtifactError(
            f"{captured}: {field} is {actual}, but {expected} in the client's spec; {IMPORT_AGAIN}"
        )
