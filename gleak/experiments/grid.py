"""Grids: the cells of a study, from axes of spec strings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Tag

from gleak.core.errors import SpecError, error_context, nearest
from gleak.core.registry import load, parse
from gleak.core.settings import Scale
from gleak.core.yaml_input import at_scale
from gleak.experiments.axes import check_axis, field_values
from gleak.experiments.axis_labels import BLIND, AxisLabels, bare, canonical
from gleak.experiments.cell import LEVELS, SCORED_BY, TRUTH, Cell
from gleak.experiments.own_models import check_own_model, is_own
from gleak.experiments.refusals import (
    Refusal,
    check_left,
    levels_of,
    levels_of_truth,
    sift,
    unchecked,
)
from gleak.experiments.search.declaration import OWN_SPLIT, Search
from gleak.experiments.search.reference import Reference

NO_SEARCHES: Mapping[str, Search] = MappingProxyType({})


def _as_list(value: object) -> object:
    return [value] if isinstance(value, (str, Mapping)) else value


def _sort_of(value: object) -> str:
    return "search" if isinstance(value, (Mapping, Reference)) else "spec"


Values = Annotated[list[str], BeforeValidator(_as_list)]
Attack = Annotated[
    Annotated[str, Tag("spec")] | Annotated[Reference, Tag("search")], Discriminator(_sort_of)
]
Attacks = Annotated[list[Attack], BeforeValidator(_as_list)]


class Axes(BaseModel):
    """What a scale may say of a grid; what it leaves out is as at the scale of the paper.

    Args:
        dataset, model, training, crafting, client, defense, attack: a spec string or a list. The
            last level of a grid says what is scored: attacks by what they reconstruct, without
            those after crafting the broadcast parameters by a client's audits, without those
            after training the models as they are. On the axis of attacks ``{search: NAME}``, with
            fields that are changed after it, is what a search of the study chose at the scale.
        zip: groups of levels whose lists advance together. Where the first of a group tells its
            cells apart, figures name no other.
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
    attack: Attacks | None = None
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
        return at_scale(self, Axes, scale)


@dataclass(frozen=True)
class Grid:
    """The cells of one grid at one scale.

    Args:
        name: as in the study.
        scale: one of `SCALES`.
        cells: all that are scored, cut short after the last level of the grid, in the order of the
            study; of attacks blind's are among them.
        truths: the cells, cut short after the defence, in which the truth itself is scored.
        names: values of each level and what they are called.
        searches: names of those that some of its attacks come from.
        refused: what would be among the cells and truths if its specs did fit together.
    """

    name: str
    scale: Scale
    cells: list[Cell]
    truths: list[Cell]
    names: AxisLabels
    searches: frozenset[str] = frozenset()
    refused: tuple[Refusal, ...] = ()

    @property
    def scored(self) -> list[dict[str, str]]:
        """The spec of each level of all that stands in the grid's table, as its rows have it.

        The truth's attack is TRUTH; levels that the grid does not have are empty.
        """
        refused = [dict(refusal.levels) for refusal in self.refused]
        rows = [*self.computed, *refused]
        return sorted(rows, key=self._place) if refused else rows

    @property
    def computed(self) -> list[dict[str, str]]:
        """As `scored`, of all that has a ``scores.csv``: what was refused has none."""
        return [*map(levels_of, self.cells), *map(levels_of_truth, self.truths)]

    def examined(self, data_dir: Path) -> Grid:
        """The grid without the cells whose model is a user's own network that does not serve them.

        Args:
            data_dir: where the user keeps data.

        Raises:
            SpecError, IncompatibleError: there is no such network, or no attacked cell is left.
        """
        if not any(map(is_own, self.cells)):
            return self
        check = partial(check_own_model, data_dir=data_dir)
        cells, refused = sift(self.cells, levels_of, check)
        check_left(cells, refused)
        truths, without_truth = sift(self.truths, levels_of_truth, check)
        refused = [*self.refused, *refused, *without_truth]
        return replace(self, cells=cells, truths=truths, refused=tuple(refused))

    def _place(self, row: Mapping[str, str]) -> list[int]:
        return [axis.index(row[level]) for level, axis in self.names.values.items()]


def expand(
    name: str,
    file: GridFile,
    scale: Scale,
    where: str,
    searches: Mapping[str, Search] = NO_SEARCHES,
) -> Grid:
    """The cells of a grid at a scale.

    Args:
        name: of the grid.
        file: the grid as written.
        scale: one of `SCALES`.
        where: file, study and grid, put before an error.
        searches: of the study, at the scale.

    Raises:
        SpecError: axes that leave a level out or end where nothing is scored, an axis without
            values, lists of unequal length under ``zip``, an ``exclude`` that matches nothing, an
            unknown spec.
        IncompatibleError: there is no cell whose specs fit together.
    """
    with error_context(where):
        _check_levels(file.levels)
    where = f"{where}, scale {scale!r}"
    written = file.at(scale)
    with error_context(f"{where}, axis 'attack'"):
        attacks, tuned = _attacks(written.attack or [], searches)
    found = written.model_copy(update={"attack": attacks})
    axes = {level: _axis(level, getattr(found, level), where) for level in file.levels}
    rows = _combine(axes, written.zip or [], tuned, where)
    rows = _leave_out(rows, written.exclude or [], tuned, where)
    controls = file.controls if "attack" in axes else []
    blind = [{**row, "attack": BLIND} for row in rows if BLIND in controls]
    if tuned:
        _check_victims(rows, where)
    with error_context(where):
        every = [unchecked(row) for row in _unique([*rows, *blind])]
        cells, refused = sift(every, levels_of, Cell.check)
        sent = dict.fromkeys(cell.upto("defense") for cell in every if TRUTH in controls)
        truths, without_truth = sift(sent, levels_of_truth, Cell.check)
        check_left(cells, refused)
    if controls:
        axes["attack"] += controls
    values = {level: tuple(dict.fromkeys(texts)) for level, texts in axes.items()}
    names = AxisLabels(values, {}, _labels(file.labels), {"attack": tuned}, written.zip or ())
    with error_context(f"{where}, stands_for"):
        names = replace(names, stands_for=_stand_ins(written.stands_for or {}, names))
    refused += without_truth
    return Grid(name, scale, cells, truths, names, _searches(written), tuple(refused))


def _attacks(
    items: Sequence[str | Reference], searches: Mapping[str, Search]
) -> tuple[list[str], dict[str, str]]:
    """The specs on an axis of attacks, and for those that searches chose what these began with."""
    pairs = [item.specs(searches) if isinstance(item, Reference) else item for item in items]
    texts = [pair if isinstance(pair, str) else pair[1] for pair in pairs]
    return texts, {pair[1]: pair[0] for pair in pairs if not isinstance(pair, str)}


def _check_victims(rows: Sequence[Mapping[str, str]], where: str) -> None:
    """Refuse victims from the split that searches choose on, where their choices are reported."""
    for row in rows:
        if parse("client", row["client"]).split == OWN_SPLIT:
            raise SpecError(
                f"{where}: client {row['client']} draws from split={OWN_SPLIT}, on which searches "
                "choose; what they chose is reported on split=test"
            )


def _searches(written: Axes) -> frozenset[str]:
    """Names of the searches that the axis of attacks refers to."""
    items = written.attack or []
    return frozenset(item.search for item in items if isinstance(item, Reference))


def _check_levels(given: Sequence[str]) -> None:
    """Refuse axes with a gap, and those that end with what has no scores."""
    if gaps := [level for level in LEVELS[: len(given)] if level not in given]:
        raise SpecError(f"axis {gaps[0]!r} is left out before {given[-1]!r}")
    if not given or given[-1] not in SCORED_BY:
        last = repr(given[-1]) if given else "none"
        raise SpecError(f"the last axis is {last}; a grid ends with one of {', '.join(SCORED_BY)}")


def _axis(level: str, texts: Sequence[str] | None, where: str) -> list[str]:
    """The canonical specs of one axis."""
    with error_context(f"{where}, axis {level!r}"):
        if not texts:
            raise SpecError("has no values; give a spec or a list of them")
        if level == "attack" and TRUTH in texts:
            raise SpecError(f"{TRUTH!r} is a control, not an attack; put it under controls")
        return [canonical(level, text) for text in texts]


def _combine(
    axes: Mapping[str, list[str]],
    zipped: Sequence[Sequence[str]],
    tuned: Collection[str],
    where: str,
) -> list[dict[str, str]]:
    """Every combination of axes; the levels of a group advance together.

    A search may choose what stands on the axis already; that is one cell.
    """
    with error_context(f"{where}, zip"):
        _check_zip(axes, zipped)
    together = {level: tuple(group) for group in zipped for level in group}
    groups = list(dict.fromkeys(together.get(level, (level,)) for level in axes))
    points = [list(zip(*(axes[level] for level in group), strict=True)) for group in groups]
    order = [level for group in groups for level in group]
    found = [dict(zip(order, sum(point, ()), strict=True)) for point in product(*points)]
    rows = [{level: row[level] for level in axes} for row in found]
    written = ("/".join(row.values()) for row in rows if row.get("attack") not in tuned)
    for cell, times in Counter(written).most_common(1):
        if times > 1:
            raise SpecError(f"{where}: the cell {cell} is there {times} times")
    return _unique(rows)


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
    rows: Sequence[dict[str, str]],
    excluded: Sequence[Mapping[str, str]],
    tuned: Mapping[str, str],
    where: str,
) -> list[dict[str, str]]:
    """The rows that no exclusion matches; an attack is matched by what its search began with too.

    Raises:
        SpecError: an exclusion that matches nothing, which is mostly a slip; or nothing is left.
    """
    kept = list(rows)
    for texts in excluded:
        with error_context(f"{where}, exclude {dict(texts)}"):
            wanted = {_level(lv, rows[0]): canonical(lv, text) for lv, text in texts.items()}
            if not any(_matches(row, wanted, tuned) for row in rows):
                raise SpecError("matches no cell; correct it, or override it at this scale")
        kept = [row for row in kept if not _matches(row, wanted, tuned)]
    if not kept:
        raise SpecError(f"{where}, exclude: no cell is left")
    return kept


def _matches(row: Mapping[str, str], wanted: Mapping[str, str], tuned: Mapping[str, str]) -> bool:
    attack = row.get("attack", "")
    began = {**row, "attack": tuned.get(attack, attack)}
    return all(spec in (row[level], began[level]) for level, spec in wanted.items())


def _level(level: str, known: Collection[str]) -> str:
    if level not in known:
        raise SpecError(f"unknown level {level!r}; {nearest(level, known)}")
    return level


def _unique(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [dict(row) for row in dict.fromkeys(tuple(row.items()) for row in rows)]


def _stand_ins(written: Mapping[str, str], names: AxisLabels) -> dict[str, dict[str, str]]:
    """For each level, our canonical value -> the published one."""
    found: dict[str, dict[str, str]] = {}
    for text, published in written.items():
        place = next(_places(text, names), None)
        if place is None:
            options = nearest(text, {value for axis in names.values.values() for value in axis})
            raise SpecError(f"{text!r} is on no axis; {options}")
        level, value = place
        found.setdefault(level, {})[value] = canonical(level, published)
    for level, pairs in found.items():
        published, times = Counter(pairs.values()).most_common(1)[0]
        if times > 1:
            raise SpecError(f"{times} {level} values stand for {published!r}; only one can")
    return found


def _places(text: str, names: AxisLabels) -> Iterator[tuple[str, str]]:
    """Levels and values of a grid that a text is the spec of."""
    for level, axis in names.values.items():
        spec = _spec_of(level, text)
        yield from (
            (level, value) for value in axis if spec in (value, names.before_search(level, value))
        )


@cache
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


def check_labels(file: GridFile, names: Sequence[AxisLabels]) -> None:
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


def _is_axis(text: str, names: AxisLabels) -> bool:
    try:
        check_axis(text, names)
    except SpecError:
        return False
    return True
