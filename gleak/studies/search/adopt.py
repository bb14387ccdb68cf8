"""Adoption of search results: from the results of a run to the studies' files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gleak.core.errors import SpecError
from gleak.studies.search.chosen import (
    Entry,
    SearchOutcome,
    chosen_file,
    read_choices,
    write_choices,
)
from gleak.studies.study import load_study


def adopt(files: Sequence[Path], studies: Path) -> list[SearchOutcome]:
    """Merge outcomes into ``chosen/<study>.yaml`` in the folder of studies; keep other entries.

    Returns:
        The adopted outcomes. Either all are written or none.

    Raises:
        SpecError: a file is not an outcome, its study or search is unknown, its search has changed
            since, or two files belong to the same search.
    """
    outcomes = {file: SearchOutcome.read(file) for file in files}
    first: dict[tuple[str, str, str], Path] = {}
    for file, outcome in outcomes.items():
        other = first.setdefault((outcome.study, outcome.scale, outcome.search), file)
        if other != file:
            raise SpecError(
                f"{other} and {file} are both of search {outcome.search!r} of study "
                f"{outcome.study!r} at scale {outcome.scale!r}; give one of them"
            )
    for file, outcome in outcomes.items():
        study = load_study(studies / f"{outcome.study}.yaml")
        if study.search(outcome.search, outcome.scale).fingerprint != outcome.fingerprint:
            raise SpecError(
                f"{file}: search {outcome.search!r} of study {outcome.study!r} has changed since; "
                "run it again: snakemake searches"
            )
    adopted: dict[Path, dict[str, dict[str, Entry]]] = {}
    for outcome in outcomes.values():
        path = chosen_file(studies / f"{outcome.study}.yaml")
        choices = adopted.setdefault(path, read_choices(path))
        choices.setdefault(outcome.scale, {})[outcome.search] = outcome.entry
    for path, choices in adopted.items():
        write_choices(path, choices)
    return list(outcomes.values())
