"""Where captures are kept: ``<data_dir>/captures/<name>/``, one folder each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gleak.core.errors import ArtifactError, DataError, nearest

MODEL = "model.h5"
UPDATE = "update.h5"
PRIVATE = "private.h5"
AGAIN = "ask for it as gleak import said, or import it again"


@dataclass(frozen=True)
class Captures:
    """All captures of a user.

    Args:
        data_dir: where the user keeps data.
    """

    data_dir: Path

    @property
    def root(self) -> Path:
        """The folder that holds theirs."""
        return self.data_dir / "captures"

    def folder(self, name: str) -> Path:
        """The folder of one, whether it is there or not."""
        return self.root / name

    def file(self, name: str, file: str) -> Path:
        """One of the files of a capture.

        Args:
            name: of the capture.
            file: `MODEL`, `UPDATE` or `PRIVATE`.

        Raises:
            DataError: no such capture, or it was taken in without the truth.
        """
        folder = self.folder(name)
        if not folder.is_dir():
            known = [found.name for found in self.root.glob("[!.]*") if found.is_dir()]
            raise DataError(
                f"{folder}: no such capture; {nearest(name, known)}; gleak import {name} makes it, "
                "or set data_dir in config.yaml (or --config data_dir=...) to where it is"
            )
        path = folder / file
        if not path.is_file():
            raise DataError(
                f"{path}: capture {name!r} holds no truth, of which scores and grants are made; "
                f"ask for an attack's reconstruction.h5, or give the samples: gleak import {name} "
                "--truth ... --replace"
                if file == PRIVATE
                else f"{path} is missing; make the capture again: gleak import {name} --replace"
            )
        return path


def check_said(said: object, found: object, field: str, captured: Path) -> None:
    """Refuse a capture of clients that trained in another way than a client's spec says.

    Args:
        said: by the spec.
        found: in the file.
        field: what is compared.
        captured: the file.

    Raises:
        ArtifactError: names file and field.
    """
    if said != found:
        raise ArtifactError(f"{captured}: {field} is {found}, but the client says {said}; {AGAIN}")
