"""Adoption of search results: copied from the results of a run to the studies' files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gleak.core.errors import SpecError
from gleak.studies.search.chosen import (
    Adopted,
    Outcome,
    chosen_file,
    read_choices,
    write_choices,
)
from gleak.studies.study import load_study


def adopt(files: Sequence[Path], studies: Path) -> list[Outcome]:
    """Merge outcomes into ``chosen/<study>.yaml`` in the folder of studies; keep other entries.

    Args:
        files: ``chosen.yaml`` files of searches.
        studies: folder with the study files.

    Returns:
        The adopted outcomes. Either all are written or none.

    Raises:
        SpecError: a file is not an outcome, its study or search is unknown, its search has changed
            since, or two files belong to the same search.
    """
    outcomes = {file: Outcome.read(file) for file in files}
    _check_once(outcomes)
    for file, outcome in outcomes.items():
        _check_declared(file, outcome, studies)
    adopted: dict[Path, Adopted] = {}
    for outcome in outcomes.values():
        path = chosen_file(studies / f"{outcome.study}.yaml")
        adopted[path] = _merged(adopted.get(path) or read_choices(path), outcome)
    for path, choices in adopted.items():
        write_choices(path, choices)
    return list(outcomes.values())


def _check_once(outcomes: dict[Path, Outcome]) -> None:
    first: dict[tuple[str, str, str], Path] = {}
    for file, outcome in outcomes.items():
        other = first.setdefault((outcome.study, outcome.scale, outcome.search), file)
        if other != file:
            raise SpecError(
                f"{other} and {file} are both of search {outcome.search!r} of study "
                f"{outcome.study!r} at scale {outcome.scale!r}; give one of them"
            )


def _check_declared(file: Path, outcome: Outcome, studies: Path) -> None:
    search = load_study(studies / f"{outcome.study}.yaml").search(outcome.search, outcome.scale)
    if search.fingerprint != outcome.fingerprint:
        raise SpecError(
            f"{file}: search {outcome.search!r} of study {outcome.study!r} has changed since; run "
            "it again: snakemake searches"
        )


def _merged(choices: Adopted, outcome: Outcome) -> Adopted:
    entries = {**choices.get(outcome.scale, {}), outcome.search: outcome.entry}
    return {**choices, outcome.scale: entries}
