"""Damaged files of the results: a job that meets one notes it, the next run has it made again.

The file stays where it is for as long as the run goes on: a job that found nothing in its place
would end the whole run, and not only what depends on the file.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gleak.core.errors import DamagedError

NOTES = "damaged.txt"
SUFFIX = ".damaged"


def note_damage(error: DamagedError, results: Path) -> str:
    """Note a damaged file, if it is one of the results; what to say of it.

    Args:
        error: names the file.
        results: folder of the results.
    """
    path = error.path
    if not (path.exists() and _is_below(path, results)):
        return str(error)
    try:
        with (results / NOTES).open("a") as notes:
            notes.write(f"{path.resolve().relative_to(results.resolve())}\n")
    except OSError:
        return str(error)
    return f"{path}: {error.fault}; it is made again by: snakemake {path}"


def quarantine(results: Path) -> list[Path]:
    """Rename what was noted, so that it is missing and is made again.

    Args:
        results: folder of the results.

    Returns:
        The files, under their former names.
    """
    notes, found = results / NOTES, []
    with suppress(FileNotFoundError):
        for line in dict.fromkeys(notes.read_text().splitlines()):
            path = results / line
            if path.is_file() and _is_below(path, results):
                path.replace(path.with_name(f"{path.name}{SUFFIX}"))
                found.append(path)
        notes.unlink()
    return found


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
