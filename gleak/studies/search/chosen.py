"""Results of searches: the file that a search writes, and the file with a study's adopted ones."""

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

HEADER = "# What searches chose, by scale and search; written by `gleak adopt`.\n"


class Entry(BaseModel):
    """Result of one search at one scale.

    Args:
        chosen: canonical spec of the best attack.
        value: its mean of the metric over the samples.
        base_value: mean of the metric for the base attack; None if that trial failed.
        metric: canonical spec of the metric.
        trials: number of trials.
        levels: spec strings of the cell that the trials ran on.
        fingerprint: hash of the declaration (`gleak.studies.search.declaration.SpecSearch`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chosen: str
    value: float
    base_value: float | None
    metric: str
    trials: int
    levels: dict[str, str]
    fingerprint: str


class SearchOutcome(Entry):
    """Content of a search's ``chosen.yaml``: an entry, and the search it belongs to."""

    study: str
    scale: str
    search: str

    @property
    def summary(self) -> str:
        """Chosen spec and its improvement over the base, in one line."""
        before = "failed" if self.base_value is None else f"had {self.base_value:.4g}"
        return (
            f"{self.chosen} has {self.metric} {self.value:.4g}; the base {self.levels['attack']} "
            f"{before}"
        )

    @classmethod
    def read(cls, path: Path) -> SearchOutcome:
        content = load_mapping(path, "chosen.yaml of a search", "study, scale, search, chosen")
        return read_model(cls, content, str(path))

    def write(self, path: Path) -> None:
        """Write the file; equal content gives equal bytes."""
        place = ("study", "scale", "search")
        _write(path, {**self.model_dump(include=set(place)), **self.model_dump(exclude=set(place))})

    @property
    def entry(self) -> Entry:
        return Entry(**self.model_dump(include=set(Entry.model_fields)))


def chosen_file(study: Path) -> Path:
    """Return the path of a study's adopted results, given the path of the study file."""
    return study.parent / "chosen" / study.name


Adopted = Mapping[str, Mapping[str, Entry]]
"""Scale -> search -> entry."""


def read_choices(path: Path) -> dict[str, dict[str, Entry]]:
    """Read adopted results: scale -> search -> entry; empty if the file does not exist."""
    if not path.is_file():
        return {}
    content = load_mapping(path, "file of choices", "scale -> search -> entry")
    for scale, entries in content.items():
        if scale not in SCALES:
            raise SpecError(f"{path}: unknown scale {scale!r}; {nearest(scale, SCALES)}")
        if not isinstance(entries, dict):
            raise SpecError(f"{path}: scale {scale!r} must be a mapping: search -> entry")
    return {
        scale: {
            name: read_model(Entry, entry, f"{path}: scale {scale!r}, search {name!r}")
            for name, entry in entries.items()
        }
        for scale, entries in content.items()
    }


def write_choices(path: Path, choices: Adopted) -> None:
    """Write adopted results, sorted by scale and search; equal content gives equal bytes."""
    content: dict[str, Any] = {
        scale: {name: choices[scale][name].model_dump() for name in sorted(choices[scale])}
        for scale in SCALES
        if choices.get(scale)
    }
    _write(path, content, HEADER)


def _write(path: Path, content: Mapping[str, Any], header: str = "") -> None:
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
    with atomic(path) as temporary:
        temporary.write_text(header + text, encoding="utf-8")
