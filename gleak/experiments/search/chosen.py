"""What searches chose: one file of a search's results, and one of a study that uses them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from gleak.artifacts.atomic import atomic
from gleak.core.errors import SpecError, nearest
from gleak.core.settings import SCALES
from gleak.core.yaml_input import load_mapping, read_model

FOLDER = "chosen"
HEADER = "# What searches chose, by scale and search; written by `gleak adopt`.\n"
LONGEST_LINE = 1000


class Entry(BaseModel):
    """What one search chose at one scale.

    Args:
        chosen: canonical spec of the attack.
        value: its value of the metric, the mean over the samples.
        base_value: that of the spec the search began with; None where that failed.
        metric: what was measured.
        trials: how many specs were tried.
        levels: the cell on which they were.
        fingerprint: of the declaration, see `gleak.experiments.search.declaration.Search`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chosen: str
    value: float
    base_value: float | None
    metric: str
    trials: int
    levels: dict[str, str]
    fingerprint: str


class Outcome(Entry):
    """A search's ``chosen.yaml``: an entry, and where it belongs.

    Args:
        study, scale, search: names.
    """

    study: str
    scale: str
    search: str

    @property
    def summary(self) -> str:
        """What was chosen and what that gained, in one line."""
        before = "failed" if self.base_value is None else f"had {self.base_value:.4g}"
        return (
            f"{self.chosen} has {self.metric} {self.value:.4g}; {self.levels['attack']}, which it "
            f"began with, {before}"
        )

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """Read the file.

        Raises:
            SpecError: no such file, or another one.
        """
        content = load_mapping(path, "chosen.yaml of a search", "study, scale, search, chosen")
        return read_model(cls, content, str(path))

    def write(self, path: Path) -> None:
        """Write the file; equal content gives equal bytes."""
        place = ("study", "scale", "search")
        _write(path, {**self.model_dump(include=set(place)), **self.model_dump(exclude=set(place))})

    @property
    def entry(self) -> Entry:
        """What stands in the study's file."""
        return Entry(**self.model_dump(include=set(Entry.model_fields)))


def chosen_file(study: Path) -> Path:
    """Where the choices of a study stand, told from the study's own file."""
    return study.parent / FOLDER / study.name


Adopted = Mapping[str, Mapping[str, Entry]]
"""Scale -> search -> entry."""


def read_choices(path: Path) -> dict[str, dict[str, Entry]]:
    """Scale -> search -> entry; nothing where there is no file.

    Raises:
        SpecError: not such a file; names it, the scale and the search.
    """
    if not path.is_file():
        return {}
    content = load_mapping(path, "file of choices", "scale -> search -> entry")
    for scale, entries in content.items():
        if scale not in SCALES:
            raise SpecError(f"{path}: unknown scale {scale!r}; {nearest(str(scale), SCALES)}")
        if not isinstance(entries, dict):
            raise SpecError(f"{path}: scale {scale!r} holds a mapping: search -> entry")
    return {
        scale: {
            name: read_model(Entry, entry, f"{path}: scale {scale!r}, search {name!r}")
            for name, entry in entries.items()
        }
        for scale, entries in content.items()
    }


def write_choices(path: Path, choices: Adopted) -> None:
    """Write them, scales and searches in order; equal content gives equal bytes."""
    content: dict[str, Any] = {
        scale: {name: choices[scale][name].model_dump() for name in sorted(choices[scale])}
        for scale in SCALES
        if choices.get(scale)
    }
    _write(path, content, HEADER)


def _write(path: Path, content: Mapping[str, Any], header: str = "") -> None:
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=LONGEST_LINE)
    with atomic(path) as temporary:
        temporary.write_text(header + text, encoding="utf-8")
