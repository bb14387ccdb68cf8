"""Grids: the cells of a study, from axes of spec strings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict

from gleak.cell import LEVELS, TRUTH, Cell
from gleak.errors import FitError, SpecError, nearest
from gleak.figures.axes import check_axis, field_values
from gleak.figures.names import BLIND, Names, bare, canonical
from gleak.registry import load
from gleak.settings import Scale

SCALES: tuple[Scale, ...] = get_args(Scale)
BASE: Scale = "paper"
ENDS = ("attack", "training")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Values = Annotated[list[str], BeforeValidator(_as_list)]


class Axes(BaseModel):
    """What a scale may say of a grid; what it leaves out is as at the scale of the paper.

    Args:
        dataset, model, training, crafting, client, defense, attack: a spec string or a list. A
            grid without those after training is one of models, which are scored as they are.
        zip: groups of levels whose lists advance together.
        exclude: cells that have all of these specs are left out.
        stands_for: spec of an axis -> the published one it stands in for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: Values | None = None
    model: Values | None = None
    training: Values | None = None
    crafting: Values | None = None
    client: Values | None = None
    defense: Values | None = None
    attack: Values | None = None
    zip: list[list[str]] | None = None
    exclude: list[dict[str, str]] | None = None
    stands_for: dict[str, str] | None = None


class GridFile(Axes):
    """A grid as it stands in a study file.

    Args:
        controls: added to the attacks: blind, which uses no update, and the truth itself.
        labels: a spec, name, metric or axis -> what figures print.
        quick, small: what is different at these scales.
    """

    controls: list[Literal["blind", "truth"]] = ["blind", "truth"]
    labels: dict[str, str] = {}
    quick: Axes | None = None
    small: Axes | None = None

    @property
    def levels(self) -> list[str]:
        """The levels that have an axis at any scale."""
        parts = [part for part in (self, self.quick, self.small) if part is not None]
        return [lv for lv in LEVELS if any(getattr(part, lv) is not None for part in parts)]

    def at(self, scale: Scale) -> Axes:
        """The axes at a scale."""
        changes = None if scale == BASE else getattr(self, scale)
        both = [
            part.model_dump(include=set(Axes.model_fields), exclude_none=True)
            for part in (self, changes)
            if part is not None
        ]
        return Axes(**{key: value for part in both for key, value in part.items()})


@dataclass(frozen=True)
class Grid:
    """The cells of one grid at one scale.

    Args:
        name: as in the study.
        scale: one of `SCALES`.
        cells: every attack's, blind's among them, in the order of the study; or every model's, cut
            short after the training.
        truths: the cells, cut short after the defence, in which the truth itself is scored.
        names: values of each level and what they are called.
    """

    name: str
    scale: Scale
    cells: list[Cell]
    truths: list[Cell]
    names: Names

    @property
    def scored(self) -> list[dict[str, str]]:
        """The spec of each level of all that has a ``scores.csv``, as its rows have it.

        The truth's attack is TRUTH; levels after a model's training are empty.
        """
        truths = [{**cell.strings(), "attack": TRUTH} for cell in self.truths]
        rows = [*(cell.strings() for cell in self.cells), *truths]
        return [{level: row.get(level, "") for level in LEVELS} for row in rows]


def expand(name: str, file: GridFile, scale: Scale, where: str) -> Grid:
    """The cells of a grid at a scale.

    Args:
        name: of the grid.
        file: the grid as written.
        scale: one of `SCALES`.
        where: file, study and grid, put before an error.

    Raises:
        SpecError: axes that leave a level out or end where nothing is scored, an axis without
            values, lists of unequal length under ``zip``, an ``exclude`` that matches nothing, an
            unknown spec.
        FitError: specs that do not fit together.
    """
    with at(where):
        _check_levels(file.levels)
    where = f"{where}, scale {scale!r}"
    written = file.at(scale)
    axes = {level: _axis(level, getattr(written, level), where) for level in file.levels}
    rows = _combine(axes, written.zip or [], where)
    rows = _leave_out(rows, written.exclude or [], where)
    controls = file.controls if "attack" in axes else []
    blind = [{**row, "attack": BLIND} for row in rows if BLIND in controls]
    cells = [Cell.parse(row, where=where) for row in _unique([*rows, *blind])]
    truths = list(dict.fromkeys(cell.upto("defense") for cell in cells if TRUTH in controls))
    if controls:
        axes["attack"] = list(dict.fromkeys([*axes["attack"], *controls]))
    values = {level: tuple(texts) for level, texts in axes.items()}
    with at(f"{where}, stands_for"):
        stands_for = _stand_ins(written.stands_for or {}, values)
    return Grid(name, scale, cells, truths, Names(values, stands_for, _labels(file.labels)))


@contextmanager
def at(place: str) -> Iterator[None]:
    """Put a place before the errors raised in the block."""
    try:
        yield
    except (SpecError, FitError) as error:
        raise type(error)(f"{place}: {error}") from None


def _check_levels(given: Sequence[str]) -> None:
    """Refuse axes with a gap, and those that end with what has no scores."""
    if gaps := [level for level in LEVELS[: len(given)] if level not in given]:
        raise SpecError(f"axis {gaps[0]!r} is left out before {given[-1]!r}")
    if not given or given[-1] not in ENDS:
        last = repr(given[-1]) if given else "none"
        raise SpecError(
            f"the last axis is {last}; a grid ends with {ENDS[0]!r}, or with {ENDS[1]!r} for models"
        )


def _axis(level: str, texts: Sequence[str] | None, where: str) -> list[str]:
    """The canonical specs of one axis."""
    with at(f"{where}, axis {level!r}"):
        if not texts:
            raise SpecError("has no values; give a spec or a list of them")
        if level == "attack" and TRUTH in texts:
            raise SpecError(f"{TRUTH!r} is a control, not an attack; put it under controls")
        return [canonical(level, text) for text in texts]


def _combine(
    axes: Mapping[str, list[str]], zipped: Sequence[Sequence[str]], where: str
) -> list[dict[str, str]]:
    """Every combination of axes; the levels of a group advance together."""
    with at(f"{where}, zip"):
        _check_zip(axes, zipped)
    together = {level: tuple(group) for group in zipped for level in group}
    groups = list(dict.fromkeys(together.get(level, (level,)) for level in axes))
    points = [list(zip(*(axes[level] for level in group), strict=True)) for group in groups]
    order = [level for group in groups for level in group]
    found = [dict(zip(order, sum(point, ()), strict=True)) for point in product(*points)]
    rows = [{level: row[level] for level in axes} for row in found]
    cell, times = Counter("/".join(row.values()) for row in rows).most_common(1)[0]
    if times > 1:
        raise SpecError(f"{where}: the cell {cell} is there {times} times")
    return rows


def _check_zip(axes: Mapping[str, list[str]], zipped: Sequence[Sequence[str]]) -> None:
    levels = [_level(level, axes) for group in zipped for level in group]
    twice = sorted(level for level, times in Counter(levels).items() if times > 1)
    if twice:
        raise SpecError(f"{', '.join(twice)} named twice; a level advances with one group")
    for group in zipped:
        lengths = {level: len(axes[level]) for level in group}
        if len(set(lengths.values())) > 1:
            named = ", ".join(f"{level} has {length}" for level, length in lengths.items())
            raise SpecError(f"axes that advance together must be of equal length: {named}")


def _leave_out(
    rows: Sequence[dict[str, str]], excluded: Sequence[Mapping[str, str]], where: str
) -> list[dict[str, str]]:
    """The rows that no exclusion matches.

    Raises:
        SpecError: an exclusion that matches nothing, which is mostly a slip; or nothing is left.
    """
    kept = list(rows)
    for texts in excluded:
        with at(f"{where}, exclude {dict(texts)}"):
            wanted = {_level(lv, rows[0]): canonical(lv, text) for lv, text in texts.items()}
            if not any(wanted.items() <= row.items() for row in rows):
                raise SpecError("matches no cell; correct it, or override it at this scale")
        kept = [row for row in kept if not wanted.items() <= row.items()]
    if not kept:
        raise SpecError(f"{where}, exclude: no cell is left")
    return kept


def _level(level: str, known: Collection[str]) -> str:
    if level not in known:
        raise SpecError(f"unknown level {level!r}; {nearest(level, known)}")
    return level


def _unique(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [dict(row) for row in dict.fromkeys(tuple(row.items()) for row in rows)]


def _stand_ins(
    written: Mapping[str, str], values: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, str]]:
    """For each level, our canonical value -> the published one."""
    found: dict[str, dict[str, str]] = {}
    for text, published in written.items():
        level = next((level for level in values if _spec_of(level, text) in values[level]), None)
        if level is None:
            options = nearest(text, {value for axis in values.values() for value in axis})
            raise SpecError(f"{text!r} is on no axis; {options}")
        found.setdefault(level, {})[canonical(level, text)] = canonical(level, published)
    for level, pairs in found.items():
        published, times = Counter(pairs.values()).most_common(1)[0]
        if times > 1:
            raise SpecError(f"{times} {level} values stand for {published!r}; only one can")
    return found


def _spec_of(level: str, text: str) -> str | None:
    try:
        return canonical(level, text)
    except SpecError:
        return None


def _forms(text: str) -> set[str]:
    """The canonical specs that a label's key can be read as."""
    return {form for level in LEVELS if (form := _spec_of(level, text)) is not None}


def _labels(written: Mapping[str, str]) -> dict[str, str]:
    return {form: label for text, label in written.items() for form in {text, *_forms(text)}}


def check_labels(file: GridFile, names: Sequence[Names]) -> None:
    """Refuse labels of what is neither a spec, nor one of its fields' values, a metric or an axis.

    Args:
        file: the grid as written.
        names: of the grid, at every scale.

    Raises:
        SpecError: the first such label, with the nearest valid one.
    """
    specs = {(lv, text) for scale in names for lv, axis in scale.values.items() for text in axis}
    values = {text for _, text in specs}
    inside = {value for lv, text in specs for value in field_values(lv, text)}
    known = {*map(bare, values), *values, *inside, *load("metric"), *LEVELS}
    for text in file.labels:
        is_axis = any(_is_axis(text, scale) for scale in names)
        if not (is_axis or _forms(text) or {text, bare(text)} & known):
            raise SpecError(f"{text!r} is no spec, value, metric or axis; {nearest(text, known)}")


def _is_axis(text: str, names: Names) -> bool:
    try:
        check_axis(text, names)
    except SpecError:
        return False
    return True
