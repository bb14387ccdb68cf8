"""Grids: the cells of a study, from axes of spec strings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path

from gleak.core.errors import IncompatibleError, SpecError, error_context, nearest
from gleak.core.registry import kinds_of, load
from gleak.core.settings import Scale
from gleak.core.spec import Spec, format_value
from gleak.metrics.base import ScoreSpec
from gleak.studies.axis_labels import (
    BLIND,
    AxisLabels,
    bare,
    check_axis,
    read_metric,
    read_spec,
)
from gleak.studies.axis_values import AxisReader, AxisValue, Variants
from gleak.studies.cell import LEVELS, SCORED_BY, TRUTH, Cell, levels_of, levels_of_truth
from gleak.studies.gates import Gates
from gleak.studies.own_models import check_own_model, is_own
from gleak.studies.search.declaration import OWN_SPLIT, SpecSearch
from gleak.studies.study_file import Axes, GridFile

Row = Mapping[str, AxisValue]
"""Value of each level of a cell."""
AT_SCALES = ("zip", "exclude", "proxy_for", "networks", "no_better_than_blind")
"""Keys of a grid, besides its axes, that a scale replaces."""


@dataclass(frozen=True)
class Refusal:
    """A cell, by the specs of its levels (`levels_of`), whose specs are incompatible."""

    levels: Mapping[str, str]
    reason: str

    @property
    def row(self) -> dict[str, str]:
        return {**self.levels, "reason": self.reason}

    def __str__(self) -> str:
        return f"{'/'.join(filter(None, self.levels.values()))}: {self.reason}"


def split_refused(
    cells: Iterable[Cell], levels: Callable[[Cell], dict[str, str]], check: Callable[[Cell], None]
) -> tuple[list[Cell], list[Refusal]]:
    """Return the cells that pass a check, and refusals of those for which it raises."""
    kept, refused = [], []
    for cell in cells:
        try:
            check(cell)
            kept.append(cell)
        except IncompatibleError as error:
            refused.append(Refusal(levels(cell), " ".join(str(error).split())))
    return kept, refused


def check_left(cells: Sequence[Cell], refused: Sequence[Refusal]) -> None:
    """Raise the first refusal as an `IncompatibleError` if no cell but controls is left."""
    if refused and all(cell.strings().get("attack") == BLIND for cell in cells):
        raise IncompatibleError(f"{refused[0].reason}; so no cell is left")


@dataclass(frozen=True)
class Weak:
    """Cells whose attack is declared to be no better than blind, and the specs that they share."""

    cells: frozenset[Cell]
    specs: Mapping[str, Spec]
    reason: str


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
        searches: attack -> the search that it comes from.
        refused: what would be among the cells and truths if its specs did fit together.
        networks: independent repetitions of each cell's training, each with victims of its own.
        gates: of verdicts on its defences.
        metrics: by which cells are scored, besides those that figures and claims show; None: all.
    """

    name: str
    scale: Scale
    cells: list[Cell]
    truths: list[Cell]
    names: AxisLabels
    searches: Mapping[Spec, SpecSearch] = field(default_factory=dict)
    refused: tuple[Refusal, ...] = ()
    weak: tuple[Weak, ...] = ()
    networks: int = 1
    gates: Gates | None = None
    metrics: frozenset[ScoreSpec] | None = None

    @property
    def repeated(self) -> list[Cell]:
        """The cells, each once for every repetition of its training (`Cell.repetitions`)."""
        return [one for cell in self.cells for one in cell.repetitions(self.networks)]

    @property
    def scored(self) -> list[dict[str, str]]:
        """The spec of each level of all that stands in the grid's table, as its rows have it.

        The truth's attack is TRUTH; levels that the grid does not have are empty.
        """
        rows = [*map(levels_of, self.cells), *map(levels_of_truth, self.truths)]
        if not self.refused:
            return rows
        axes = self.names.values.items()
        return sorted(
            [*rows, *(dict(refusal.levels) for refusal in self.refused)],
            key=lambda row: [axis.index(row[level]) for level, axis in axes],
        )

    @cached_property
    def scored_cells(self) -> list[Cell]:
        """The cell of each row of `scored`."""
        return self.names.cells(self.scored)

    def examined(self, data_dir: Path) -> Grid:
        """Return the grid without cells whose model is a user's own network that does not fit them.

        Raises:
            SpecError, IncompatibleError: there is no such network, or no attacked cell is left.
        """
        if not any(map(is_own, self.cells)):
            return self
        check = partial(check_own_model, data_dir=data_dir)
        cells, refused = split_refused(self.cells, levels_of, check)
        check_left(cells, refused)
        truths, without_truth = split_refused(self.truths, levels_of_truth, check)
        refused = [*self.refused, *refused, *without_truth]
        return replace(self, cells=cells, truths=truths, refused=tuple(refused))


class GridReader:
    """Reads a grid at the scale of a reader of axes: first its axes and labels, then its cells.

    Errors (`SpecError`) begin with ``where``: file, study and grid.
    """

    def __init__(self, name: str, file: GridFile, reader: AxisReader, where: str) -> None:
        self.name, self.file, self.reader = name, file, reader
        self.where = f"{where}, scale {reader.scale!r}"
        with error_context(where):
            levels = _levels(file, reader)

        def read(reader: AxisReader) -> dict[str, list[AxisValue]]:
            axes = {}
            for level in levels:
                with error_context(f"{where}, scale {reader.scale!r}, axis {level!r}"):
                    axes[level] = reader.read(level, file)
            return axes

        self.axes, self.published = read(reader), read(reader.at_paper)
        own = getattr(file, reader.scale, None) or Axes()
        self.written = Axes(
            **{
                key: getattr(file, key) if getattr(own, key) is None else getattr(own, key)
                for key in AT_SCALES
            }
        )
        reconstructs = any(value.spec.kind == "attack" for value in self.axes.get("attack", ()))
        self.controls = file.controls if reconstructs else []
        with error_context(f"{self.where}, zip"):
            _check_zip(self.axes, self.written.zip or [])

    @cached_property
    def names(self) -> AxisLabels:
        """The values of the axes with their labels, and those of the specs they substitute."""
        variants = self.reader.variants
        with error_context(f"{self.where}, proxy_for"):
            proxies = _proxies(self.axes, self.published, self.written.proxy_for or {}, variants)
        specs = {level: [value.spec for value in axis] for level, axis in self.axes.items()}
        if self.controls:
            specs["attack"] += [read_spec("attack", name) for name in self.controls]
        own = _labels(self.file.labels)
        theirs = {str(spec) for pairs in proxies.values() for spec in pairs.values()}
        published = {k: label for k, label in _called(self.published, own).items() if k in theirs}
        called = {**published, **_called(self.axes, own)}
        return AxisLabels(
            axes={level: tuple(dict.fromkeys(values)) for level, values in specs.items()},
            substituted={level: pairs for level, pairs in proxies.items() if pairs},
            labels={**_labels({**self.reader.study.labels, **called}), **own},
            bases={"attack": {v.spec: v.base for v in self.axes.get("attack", ()) if v.base}},
            zipped=self.written.zip or (),
            variants={
                level: variants.specs(level)
                | {value.variant: value.spec for value in axis if value.variant}
                for level, axis in self.axes.items()
            },
        )

    @cached_property
    def grid(self) -> Grid:
        """The cells.

        Raises:
            SpecError: an ``exclude`` that matches nothing, a cell that is there twice, networks
                that cannot be repeated.
            IncompatibleError: there is no cell whose specs fit together.
        """
        written, where, variants = self.written, self.where, self.reader.variants
        rows = _combine(self.axes, written.zip or [], where)
        rows = _leave_out(rows, written.exclude or [], variants, where)
        blind = AxisValue(read_spec("attack", BLIND))
        every = dict.fromkeys(map(_cell_of, rows))
        if BLIND in self.controls:
            every |= dict.fromkeys(_cell_of({**row, "attack": blind}) for row in rows)
        _check_victims(rows, where)
        with error_context(where):
            cells, refused = split_refused(every, levels_of, Cell.check)
            sent = dict.fromkeys(cell.upto("defense") for cell in every if TRUTH in self.controls)
            truths, without_truth = split_refused(sent, levels_of_truth, Cell.check)
            check_left(cells, refused)
        networks = written.networks or 1
        with error_context(f"{where}, networks"):
            _check_networks(cells, networks)
        return Grid(
            self.name,
            self.reader.scale,
            cells,
            truths,
            self.names,
            searches={v.spec: v.search for axis in self.axes.values() for v in axis if v.search},
            refused=(*refused, *without_truth),
            weak=_read_weak(rows, written, variants, where),
            networks=networks,
            gates=self.file.gates,
            metrics=self._metrics(),
        )

    def _metrics(self) -> frozenset[ScoreSpec] | None:
        """Return the metrics that the file names; None if it names none."""
        if self.file.metrics is None:
            return None
        with error_context(f"{self.where}, metrics"):
            for text in self.file.metrics:
                self.names.check_metric(text)
            return frozenset(map(read_metric, self.file.metrics))


def _levels(file: GridFile, reader: AxisReader) -> list[str]:
    """Return the levels of a grid, and refuse one that ends with what has no scores."""
    parts = [part for part in (file, file.quick, file.small) if part is not None]
    given = [
        level
        for level in LEVELS
        if level in reader.study.base or any(getattr(part, level) is not None for part in parts)
    ]
    last = file.end or (given[-1] if given else "none")
    levels = list(LEVELS[: LEVELS.index(last) + 1]) if last in LEVELS else []
    if missing := [level for level in levels if level not in given]:
        raise SpecError(f"axis {missing[0]!r} is left out before {last!r}")
    if last not in SCORED_BY:
        valid = ", ".join(level for level in LEVELS if level in SCORED_BY)
        raise SpecError(f"the last axis is {last!r}; a grid ends with one of {valid}")
    return levels


def _check_victims(rows: Sequence[Row], where: str) -> None:
    """Refuse victims from the split that searches choose on, where their choices are reported."""
    for row in rows:
        if "attack" in row and row["attack"].search and _cell_of(row).client.split == OWN_SPLIT:
            raise SpecError(
                f"{where}: client {row['client'].spec} draws from split={OWN_SPLIT}, on which "
                "searches choose; what they chose is reported on split=test"
            )


def _combine(
    axes: Mapping[str, list[AxisValue]], zipped: Sequence[Sequence[str]], where: str
) -> list[Row]:
    """Return every combination of axes; the levels of a group advance together.

    A search may choose what stands on the axis already; that is one cell.
    """
    together = {level: tuple(group) for group in zipped for level in group}
    groups = list(dict.fromkeys(together.get(level, (level,)) for level in axes))
    points = [list(zip(*(axes[level] for level in group), strict=True)) for group in groups]
    order = [level for group in groups for level in group]
    written: set[Cell] = set()
    rows: dict[Cell, Row] = {}
    for point in product(*points):
        values = dict(zip(order, sum(point, ()), strict=True))
        row = {level: values[level] for level in axes}
        cell = _cell_of(row)
        if "attack" not in row or not row["attack"].search:
            if cell in written:
                raise SpecError(f"{where}: the cell {cell} is there more than once")
            written.add(cell)
        rows.setdefault(cell, row)
    return list(rows.values())


def _check_zip(axes: Mapping[str, list[AxisValue]], zipped: Sequence[Sequence[str]]) -> None:
    levels = [_check_level(level, axes) for group in zipped for level in group]
    twice = sorted(level for level, times in Counter(levels).items() if times > 1)
    if twice:
        raise SpecError(f"{', '.join(twice)} named twice; a level advances with one group")
    for group in zipped:
        lengths = {level: len(axes[level]) for level in group}
        if len(set(lengths.values())) > 1:
            named = ", ".join(f"{level} has {length}" for level, length in lengths.items())
            raise SpecError(f"axes that advance together must be of equal length: {named}")


def _check_level(level: str, known: Collection[str]) -> str:
    if level not in known:
        raise SpecError(f"unknown level {level!r}; {nearest(level, known)}")
    return level


def _leave_out(
    rows: Sequence[Row], excluded: Sequence[Mapping[str, str]], variants: Variants, where: str
) -> list[Row]:
    """Return the rows that no exclusion matches; refuse exclusions that leave nothing."""
    kept = list(rows)
    for texts in excluded:
        with error_context(f"{where}, exclude {dict(texts)}"):
            left_out = _matching(rows, texts, variants)
        kept = [row for row in kept if row not in left_out]
    if not kept:
        raise SpecError(f"{where}, exclude: no cell is left")
    return kept


def _matching(rows: Sequence[Row], texts: Mapping[str, str], variants: Variants) -> list[Row]:
    """Return the rows that have, at some levels, a variant or a spec at this or the paper's scale.

    Raises:
        SpecError: a level is unknown, or no row matches, which is mostly a slip.
    """
    matched = list(rows)
    for level, text in texts.items():
        spec = variants.spec(_check_level(level, rows[0]), text)
        matched = [row for row in matched if row[level].is_called(text, spec)]
    if not matched:
        raise SpecError("matches no cell; correct it, or override it at this scale")
    return matched


def _read_weak(
    rows: Sequence[Row], written: Axes, variants: Variants, where: str
) -> tuple[Weak, ...]:
    """Return the cells of each declaration that attacks are no better than blind."""
    weak: list[Weak] = []
    for declared in written.no_better_than_blind or []:
        with error_context(f"{where}, no_better_than_blind {declared.cells}"):
            matched = _matching(rows, declared.cells, variants)
            cells = frozenset(map(_cell_of, matched))
            if twice := [cell for other in weak for cell in other.cells & cells]:
                raise SpecError(f"{twice[0]} is declared twice; one reason is enough")
            specs = {level: matched[0][level].spec for level in declared.cells}
            weak.append(Weak(cells, specs, declared.reason))
    return tuple(weak)


def _cell_of(row: Row) -> Cell:
    return Cell({level: value.spec for level, value in row.items()})


def _proxies(
    axes: Mapping[str, Sequence[AxisValue]],
    published: Mapping[str, Sequence[AxisValue]],
    written: Mapping[str, str | None],
    variants: Variants,
) -> dict[str, dict[Spec, Spec]]:
    """Return for each level our specs -> the published ones that they substitute.

    A spec that a scale changes is a proxy for what it was, and so is the only value of an axis
    that a scale replaces for the only one that it had. A study declares others; null takes one
    away.
    """
    proxies: dict[str, dict[Spec, Spec]] = {}
    for level, values in axes.items():
        pairs = {v.spec: v.original for v in values if v.original and v.original != v.spec}
        if not pairs and len(values) == len(published[level]) == 1:
            (ours,), (theirs,) = values, published[level]
            if theirs.substituted != ours.substituted:
                pairs = {ours.spec: theirs.substituted}
        proxies[level] = pairs
    for text, other in written.items():
        level, value = _place_of(text, axes, variants)
        proxies[level].pop(value, None)
        if other is not None:
            proxies[level][value] = variants.spec(level, other)
    for level, pairs in proxies.items():
        for spec, times in Counter(pairs.values()).most_common(1):
            if times > 1:
                raise SpecError(f"{times} {level} values stand for '{spec}'; only one can")
    return proxies


def _check_networks(cells: Iterable[Cell], networks: int) -> None:
    """Check that the trainings of cells can be repeated, with other parameters each time."""
    for cell in cells if networks > 1 else ():
        if getattr(cell.training, "repetition", None) != 0:
            raise SpecError(f"training {cell.training} cannot be repeated; see gleak list training")
        cell.repeated(networks - 1).check()


def _place_of(
    text: str, axes: Mapping[str, Sequence[AxisValue]], variants: Variants
) -> tuple[str, Spec]:
    """Return the level and the value that a text means."""
    for level, axis in axes.items():
        with suppress(SpecError):
            spec = variants.spec(level, text)
            for value in axis:
                if text == value.variant or spec in (value.spec, value.base):
                    return level, value.spec
    known = {str(value.spec) for axis in axes.values() for value in axis}
    raise SpecError(f"{text!r} is on no axis; {nearest(text, known)}")


def _called(axes: Mapping[str, Sequence[AxisValue]], own: Collection[str]) -> dict[str, str]:
    """Return the labels of variants by spec, except of specs that have an own label."""
    return {
        str(spec): value.label
        for axis in axes.values()
        for value in axis
        if value.label and not {str(value.substituted), str(value.substituted.setting())} & {*own}
        for spec in (value.substituted, value.spec)
    }


@cache
def _forms(text: str) -> frozenset[str]:
    """Return the canonical specs that a label's key can be read as."""
    forms = set()
    for level in {*kinds_of(bare(text)), "attack"} & {*LEVELS}:
        with suppress(SpecError):
            forms.add(str(read_spec(level, text)))
    return frozenset(forms)


def _labels(written: Mapping[str, str]) -> dict[str, str]:
    return {form: label for text, label in written.items() for form in {text, *_forms(text)}}


def check_labels(labels: Iterable[str], names: Iterable[AxisLabels]) -> None:
    """Refuse labels of what is neither a spec, nor a value of its fields, a metric or an axis.

    The grids that they are for, at every scale, are read until all labels are known.
    """
    unknown, known = [text for text in labels if not _forms(text)], {*load("metric"), *LEVELS}
    grids = iter(names)
    while unknown and (grid := next(grids, None)) is not None:
        for spec in (spec for axis in grid.axes.values() for spec in axis):
            known |= {str(spec), spec.name, *(format_value(value) for _, value in spec)}
        unknown = [
            text for text in unknown if not ({text, bare(text)} & known or _is_axis(text, grid))
        ]
    for text in unknown:
        raise SpecError(f"{text!r} is no spec, value, metric or axis; {nearest(text, known)}")


def _is_axis(text: str, names: AxisLabels) -> bool:
    try:
        check_axis(text, names)
    except SpecError:
        return False
    return True
