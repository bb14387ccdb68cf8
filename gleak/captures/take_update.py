"""The stage that makes ``update.h5`` of a capture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gleak.artifacts.update import Update
from gleak.captures.folder import check_said

if TYPE_CHECKING:
    from gleak.experiments.cell import Cell


def take_captured_update(cell: Cell, captured: Path, output: Path) -> None:
    """Write ``update.h5``: what the captured clients sent.

    Args:
        cell: up to the defence.
        captured: the capture's ``update.h5``.
        output: ``update.h5``.

    Raises:
        ArtifactError: its clients trained in another way than the cell says; names the field.
    """
    update, client = Update.read(captured), cell.client
    check_said(client.victims, update.victims, "victims", captured)
    for field, said in {"content": client.content, **client.protocol}.items():
        check_said(said, getattr(update, field), field, captured)
    replace(update, spec=str(cell)).write(output)
