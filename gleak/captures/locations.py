"""Files of captures, ``<captures_dir>/<name>/``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from gleak.core.errors import DataError, nearest

MODEL, UPDATE, PRIVATE = "model.h5", "update.h5", "private.h5"


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
