"""Check of the files that are requested from Snakemake, which does not say what was meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import permutations
from os.path import normpath
from pathlib import Path

from gleak.artifacts.store import refusal_in
from gleak.core.errors import SpecError, error_context, nearest
from gleak.core.registry import kinds_of, levels_of_kind
from gleak.core.settings import SCALES
from gleak.knowledge.base import Pretraining
from gleak.metrics.score_table import refusal_in_scores
from gleak.studies.cell import LEVELS, TRUTH, Cell, Paths
from gleak.studies.stages import STAGES, STUDY
from gleak.studies.study import Study, load_study

SUBFOLDERS = (TRUTH, "granted", "shards", "candidates")
"""Folders below those of the levels."""
SIMILAR = 0.8
"""Least similarity of a name that is taken for another (`difflib.SequenceMatcher.ratio`)."""
ORDER = "/".join(f"<{level}>" for level in LEVELS)


def check_target(
    target: str, results: Path, studies: Mapping[str, Path], rules: Collection[str]
) -> None:
    """Raise an error if a target is neither a rule nor a file that a rule creates.

    Raises:
        SpecError: the target is misspelt or not canonical; gives the whole target that was meant.
        IncompatibleError: its specs do not fit together.
    """
    if target in rules or Path(target).is_file():
        return
    place, parts = _place(Path(normpath(target)), results)
    if place == "artifacts":
        meant = _artifact(target, parts, results)
    elif place == "knowledge" and len(parts) == len(("dataset", "knowledge", "file")):
        meant = _knowledge(target, parts, results)
    elif place == "studies":
        meant = _of_study(target, parts, results, studies)
    else:
        raise SpecError(
            f"target {target!r} is neither a rule nor a file in {results}/; "
            f"{nearest(target, rules)}; files of a cell are {results}/artifacts/{ORDER}/scores.csv "
            "and others, see docs/design.md"
        )
    if normpath(target) != normpath(meant):
        raise SpecError(f"{target}: not a file of the workflow; write it as {meant}")


def refused_targets(targets: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Yield the files among these that hold a refusal, with its reason."""
    for target in map(Path, targets):
        reason = (refusal_in_scores if target.suffix == ".csv" else refusal_in)(target)
        if reason:
            yield target, reason


def _place(target: Path, results: Path) -> tuple[str, Sequence[str]]:
    """Split a target into a folder of the results, which may be left out, and what is below."""
    path, root = target.absolute(), results.absolute()
    inside = path.relative_to(root) if path.is_relative_to(root) else target
    first, *rest = inside.parts or ("",)
    if first in ("artifacts", "knowledge", "studies"):
        return first, rest
    return ("artifacts" if _kinds(first) else ""), inside.parts


def _artifact(target: str, parts: Sequence[str], results: Path) -> Path:
    """Return the path of a cell's file, with its levels in order and its specs canonical."""
    depth = next((n for n, part in enumerate(parts) if part in SUBFOLDERS), len(parts) - 1)
    specs, file = parts[:depth], "/".join(parts[depth:])
    if not 0 < depth <= len(LEVELS):
        raise SpecError(f"{target}: has {depth} levels; the levels of a path are {ORDER}")
    ordered = next((order for order in permutations(specs) if not _misplaced(order)), specs)
    with error_context(f"{target}: the levels of a path are {ORDER}"):
        cell = Cell.parse(dict(zip(LEVELS, ordered, strict=False)))
    meant = Paths(results).folder(cell) / _file(target, file, cell.end)
    if misplaced := _misplaced(specs):
        level, spec = misplaced[0]
        kinds = " and a ".join(sorted(_kinds(spec)))
        raise SpecError(
            f"{target}: {spec!r} is a {kinds}, not a {level}; the levels of a path are {ORDER}: "
            f"write it as {meant}"
        )
    return meant


def _knowledge(target: str, parts: Sequence[str], results: Path) -> Path:
    """Return the path of a file of a training on public data, with canonical specs."""
    with error_context(target):
        pretraining = Pretraining.parse(*parts[:2])
    file = _similar(target, "file", parts[2], STAGES["train_knowledge"].files)
    return Paths(results).knowledge(pretraining).with_name(file)


@cache
def _kinds(spec: str) -> frozenset[str]:
    """Return the levels to which a spec may belong, by its name."""
    kinds = kinds_of(spec.partition("+")[0])
    return frozenset([*kinds, *(level for kind in kinds for level in levels_of_kind(kind))]) & {
        *LEVELS
    }


def _misplaced(specs: Sequence[str]) -> list[tuple[str, str]]:
    """Return the level and the spec of each spec that belongs to another level."""
    places = zip(LEVELS, specs, strict=False)
    return [(level, spec) for level, spec in places if level not in _kinds(spec)]


def _files(level: str) -> Iterator[str]:
    """Yield the files in the folder of a level, with wildcards of shards."""
    start = f"artifacts/{'/'.join(f'{{{one}}}' for one in LEVELS[: LEVELS.index(level) + 1])}/"
    for stage in STAGES.values():
        for file in stage.files:
            name = f"{stage.folder}/{file}".removeprefix(start)
            if f"{stage.folder}/".startswith(start) and not name.startswith("{"):
                yield name


def _file(target: str, file: str, level: str) -> str:
    """Return the file of a level that a name means."""
    known = dict.fromkeys(_files(level))
    for pattern in known:
        if re.fullmatch(re.sub(r"\{\w+\}", r"[1-9]\\d*", pattern), file):
            return file
    others = [other for other in LEVELS if file in _files(other)]
    close = [] if others else get_close_matches(file, known, n=1, cutoff=SIMILAR)
    if close and "{" not in close[0]:
        return close[0]
    hint = f"{file} is a file of a cell that ends with {' or '.join(others)}; " if others else ""
    raise SpecError(
        f"{target}: {hint}files in the folder of a {level}: {', '.join(known)}; the levels of a "
        f"path are {ORDER}"
    )


def _of_study(
    target: str, parts: Sequence[str], results: Path, studies: Mapping[str, Path]
) -> Path:
    """Return the path of a study's file with similar names of study, scale and file."""
    if len(parts) <= len(("study", "scale")):
        raise SpecError(f"{target}: files of a study are {results}/{STUDY}/<figure>.svg and others")
    name = _similar(target, "study", parts[0], studies)
    scale = _similar(target, "scale", parts[1], SCALES)
    files = list(_files_of_study(load_study(studies[name])))
    file = _similar(target, "file", "/".join(parts[2:]), files)
    return results / STUDY.format(study=name, scale=scale) / file


def _similar(target: str, what: str, name: str, known: Collection[str]) -> str:
    """Return a name or the most similar known one."""
    close = [name] if name in known else get_close_matches(name, known, n=1, cutoff=SIMILAR)
    if not close:
        raise SpecError(f"{target}: unknown {what} {name!r}; {nearest(name, known)}")
    return close[0]


def _files_of_study(study: Study) -> Iterator[str]:
    """Yield all files of a study at one scale."""
    for name, figure in study.figures.items():
        yield from (f"{name}{suffix}" for suffix in figure.suffixes)
    yield from (file.format(grid=name) for file in STAGES["tabulate"].files for name in study.grids)
    for file in STAGES["search"].files:
        yield from (file.format(search=name) for name in study.searches)
    yield from STAGES["judge"].files
