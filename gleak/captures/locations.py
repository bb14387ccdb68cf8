"""Files of captures, ``<captures_dir>/<name>/``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from gleak.artifacts.integrity import attribute_of
from gleak.artifacts.reading import open_checked
from gleak.artifacts.update import Update
from gleak.core.errors import ArtifactError, DataError, nearest
from gleak.studies.cell import LEVELS, Cell

MODEL, UPDATE, PRIVATE = "model.h5", "update.h5", "private.h5"
IMPORT_AGAIN = "use the command printed by gleak import, or import it again"


def check_stated_defense(cell: Cell, path: Path) -> None:
    """Check that updates in a file were imported with the defence of a cell.

    Raises:
        ArtifactError: with another one, or the file is damaged.
    """
    with open_checked(path, Update.format, Update.version) as file:
        stated = dict(zip(LEVELS, str(attribute_of(file, "spec")).split("/"), strict=False))
    if stated["defense"] != str(cell.defense):
        raise ArtifactError(
            f"{path}: imported with defense {stated['defense']}, not {cell.defense}; "
            f"{IMPORT_AGAIN}, with the --defense of the clients"
        )


@dataclass(frozen=True)
class Captures:
    """All captures, each a folder in one folder."""

    root: Path

    def check(self) -> None:
        """Raise a `DataError` if captures cannot be written, as the folder above is missing."""
        if not self.root.parent.is_dir():
            command = f"mkdir -p {shlex.quote(str(self.root.parent))}"
            raise DataError(
                f"{self.root.parent}: no such folder for captures; create it ({command}), or set "
                "captures_dir in config.yaml, or give --captures-dir"
            )

    def check_new(self, name: str, *, replace: bool) -> None:
        """Raise a `DataError` if a capture exists already, or there is no folder for it."""
        self.check()
        if self.folder(name).exists() and not replace:
            raise DataError(
                f"{self.folder(name)} already exists; choose another name, or add --replace"
            )

    def folder(self, name: str) -> Path:
        """Return the folder of a capture, which need not exist."""
        return self.root / name

    def file(self, name: str, file: str) -> Path:
        """Return the path of an existing file of a capture: `MODEL`, `UPDATE` or `PRIVATE`.

        Raises:
            DataError: there is no such capture, or it was imported without the true samples.
        """
        folder = self.folder(name)
        if not folder.is_dir():
            known = [path.name for path in self.root.glob("[!.]*") if path.is_dir()]
            raise DataError(
                f"{folder}: no such capture; {nearest(name, known)}; create it with gleak import "
                f"{name}, or set captures_dir in config.yaml (or --config captures_dir=...) to the "
                "folder that contains it; by default it is <data_dir>/captures"
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
