"""Cells that a record lacks: computed by the workflow in pieces, and appended piece by piece.

Extends a record without the files of the run that it comes from: by what somebody adds to a study,
such as an attack or a defence, or by what was not finished.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from gleak.core.errors import ArtifactError, DamagedError
from gleak.core.registry import parse
from gleak.core.settings import Settings
from gleak.figures.record_files import (
    SUFFIX,
    Conditions,
    read_conditions,
    recording,
    save_record,
)
from gleak.figures.recorded import LETTERS, conditions_of
from gleak.figures.statistics import CELL
from gleak.figures.tabulate import in_order, join_networks
from gleak.metrics.score_table import REFUSED, empty_scores, read_scores, refused_scores
from gleak.runtime import provenance
from gleak.runtime.hub_weights import check_file
from gleak.runtime.workflow import Workflow
from gleak.studies.axis_labels import BLIND, bare, read_metric
from gleak.studies.cell import Cell, levels_of, levels_of_truth
from gleak.studies.estimate import jobs
from gleak.studies.grid import Grid
from gleak.studies.machine import Machine
from gleak.studies.stage_files import Made, scores_of
from gleak.studies.stages import path_of
from gleak.studies.study import Study

logger = logging.getLogger(__name__)

PIECE = 600
"""Seconds of one core that a piece takes by the plan, at least; a record is written after each."""
VICTIM = ("dataset", "model", "training", "crafting", "client")
"""Levels that decide which samples the clients of a cell have."""
ROUNDING = 1e-3
"""Relative difference of scores that are equal: records have six digits, machines differ."""
Levels = tuple[str, ...]


@dataclass(frozen=True)
class Progress:
    """Cells that a run has added to the record of a grid.

    Args:
        grid: its name.
        added: number of cells that were appended, with those that another grid had.
        failed: paths of scores that could not be computed.
        left: number of cells that the record still lacks.
    """

    grid: str
    added: int
    failed: Sequence[Path]
    left: int


@dataclass(frozen=True)
class Recorder:
    """Computes what the record of a study lacks at a scale.

    Args:
        study: as it is declared now.
        settings: of the workflow; scale and folders.
        folder: of the record.
        workflow: computes scores.
    """

    study: Study
    settings: Settings
    folder: Path
    workflow: Workflow

    def run(self, order: Callable[[], Iterable[str]], hours: float) -> Iterator[Progress]:
        """Compute and append lacking cells, piece by piece, until the time is over.

        Args:
            order: grids; asked before each piece, which is of the first grid that lacks cells.
            hours: time after which no further job is started.

        Yields:
            After each piece what was done.

        Raises:
            ArtifactError: the victims are not those of the record, this has cells that the study
                does not declare, or weights of its metrics are missing; nothing is changed.
            StoppedError: interrupted; finished cells are in the record.
        """
        with recording(self.folder):
            end = time.monotonic() + hours * 3600
            for name in order():
                self._check_weights(name)
                self._warn_of_other_code(name)
            tried: set[tuple[str, Cell]] = set()
            while time.monotonic() < end:
                for grid in map(self._grid, order()):
                    if copied := self._copy(grid):
                        yield Progress(grid.name, copied, (), len(self.lacking(grid)))
                    lacking = self.lacking(grid)
                    if new := {c: n for c, n in lacking.items() if (grid.name, c) not in tried}:
                        break
                else:
                    return
                piece = self._piece(grid, new)
                failed = self._compute(grid, piece, end - time.monotonic())
                tried |= {(grid.name, cell) for cell in piece}
                left = len(self.lacking(grid))
                yield Progress(grid.name, len(lacking) - left, failed, left)

    def _grid(self, name: str) -> Grid:
        return self.study.grid(name, self.settings.scale)

    def lacking(self, grid: Grid) -> dict[Cell, list[int]]:
        """Return the cells of a grid whose scores are not recorded, in the order of the study.

        Those that lack a metric which figures and claims need are among them, and those of fewer
        networks than the grid has.

        Returns:
            Of each cell the numbers of the networks that the record lacks, from 0.
        """
        known = _networks_in(self._whole(grid))
        every = {*range(grid.networks)}
        lacking = {cell: sorted(every - known[_key(levels_of(cell))]) for cell in grid.cells}
        return {cell: numbers for cell, numbers in lacking.items() if numbers}

    def _whole(self, grid: Grid) -> pd.DataFrame:
        """Return the recorded scores of the cells that have the metrics the study needs.

        A metric is missing if the cell has its name with other fields alone: metrics that do not
        suit a cell have no rows.
        """
        table = self._table(grid.name)
        recorded = {key: {*rows} for key, rows in table.groupby(CELL)["metric"]}
        needed = self.study.asked_metrics(grid.scale)
        lacking = set()
        for cell, key in self._keys_of(grid):
            there = recorded.get(key, set())
            names = {*map(bare, there)}
            if any(m.name in names and not m.is_among(there) for m in needed[cell]):
                lacking.add(key)
        return _without(table, lacking)

    def _keys_of(self, grid: Grid) -> Iterator[tuple[Cell, Levels]]:
        """Yield the cells of a grid and of its truths, with the levels of their rows."""
        for cell in grid.cells:
            yield cell, _key(levels_of(cell))
        for cell in grid.truths:
            yield cell, _key(levels_of_truth(cell))

    def _table(self, grid: str) -> pd.DataFrame:
        """Return the recorded scores of a grid, without refusals that the study no longer has.

        Raises:
            ArtifactError: a cell is not declared, or it is recorded twice; names it and the file.
        """
        file = self.folder / f"{grid}{SUFFIX}"
        if not file.is_file():
            return empty_scores()
        declared = {_key(row) for row in self._grid(grid).scored}
        table = read_scores([file])
        if twice := _cells_in(table[table.duplicated([*CELL, "victim", "sample", "metric"])]):
            raise DamagedError(file, f"{'/'.join(min(twice))} is recorded twice")
        known = pd.Series([key in declared for key in _keys(table)], table.index, dtype=bool)
        if other := _cells_in(table[~known & (table["status"] != REFUSED)]):
            raise ArtifactError(
                f"{file}: {len(other)} cells are not those of grid {grid!r} of study "
                f"{self.study.name!r}, {'/'.join(min(other))} first, and would be lost; declare "
                "them, or move the file away to record the grid anew"
            )
        return table[known]

    def _conditions(self) -> dict[str, Conditions]:
        """Return the conditions of the grids whose scores are there, not of those moved away."""
        recorded = read_conditions(self.folder)
        return {
            g: facts for g, facts in recorded.items() if (self.folder / f"{g}{SUFFIX}").is_file()
        }

    def _check_weights(self, grid: str) -> None:
        """Check that weights are there which recorded metrics of a grid need."""
        table = self._table(grid)
        if not self.lacking(self._grid(grid)):
            return
        for metric in table.loc[table["value"].notna(), "metric"].unique():
            for file in sorted(read_metric(metric).weights):
                try:
                    check_file(file)
                except ArtifactError as error:
                    raise ArtifactError(f"grid {grid}: the record has {metric}: {error}") from error

    def _warn_of_other_code(self, grid: str) -> None:
        """Log a warning if cells of a grid were recorded with other code than what is added."""
        facts = self._conditions().get(grid)
        changed = [c for c in facts.commits if provenance.changed_since(c)] if facts else []
        if changed and self.lacking(self._grid(grid)):
            logger.warning(
                "grid %s: recorded cells are by the code of %s, which has changed since; what is "
                "added is compared with them. To record all by one code, move %s away",
                grid,
                ", ".join(commit[:LETTERS] for commit in changed),
                self.folder / f"{grid}{SUFFIX}",
            )

    def _copy(self, grid: Grid) -> int:
        """Take cells that another grid has from as many networks, and return how many."""
        recorded, before = self._conditions(), len(self.lacking(grid))
        for other in sorted(recorded.keys() & self.study.grids.keys() - {grid.name}):
            if self.study.grid(other, grid.scale).networks != grid.networks:
                continue
            lacking = set(map(_key, grid.scored)) - _cells_in(self._table(grid.name))
            table = read_scores([self.folder / f"{other}{SUFFIX}"])
            rows = table[[key in lacking for key in _keys(table)]]
            if found := _cells_in(rows):
                cells = found & {_key(levels_of(cell)) for cell in grid.cells}
                taken = {"cells": len(cells), "cpu_hours": 0.0}
                self._append(grid, rows, recorded[other].model_copy(update=taken))
        return before - len(self.lacking(grid))

    def _append(self, grid: Grid, rows: pd.DataFrame, facts: Conditions) -> None:
        """Add cells to the record of a grid, in place of what it has of them, and refusals."""
        known, added = self._table(grid.name), _cells_in(rows)
        again = added & _cells_in(known) & {_key(levels_of(cell)) for cell in grid.cells}
        tables = [_without(known, added), rows]
        there = _cells_in(pd.concat(tables))
        left_out = [refused_scores(each.levels, each.reason) for each in grid.refused]
        tables += [each for each in left_out if not _cells_in(each) <= there]
        before = self._conditions().get(grid.name)
        facts = facts.model_copy(update={"cells": facts.cells - len(again)})
        joined = before.and_those_of(facts) if before else facts
        save_record(grid.name, in_order(tables), joined, self.folder)

    def _piece(self, grid: Grid, lacking: Mapping[Cell, Sequence[int]]) -> dict[Cell, list[Cell]]:
        """Return the first cells, which together take `PIECE` seconds, with what they lack."""
        piece: dict[Cell, list[Cell]] = {}
        seconds, machine = 0.0, Machine()
        for cell, numbers in lacking.items():
            piece[cell] = _repeated(grid, cell, numbers)
            made = [*map(scores_of, piece[cell])]
            seconds += sum(job.seconds(machine) for job in jobs(made, self.settings))
            if seconds >= PIECE:
                break
        return piece

    def _compute(
        self, grid: Grid, piece: Mapping[Cell, Sequence[Cell]], seconds: float
    ) -> list[Path]:
        """Compute cells and append those that are finished; return the files that are missing."""
        known = self._whole(grid)
        made = self._made(grid, piece, known)
        path = partial(path_of, results=self.settings.results_dir)
        files = {key: [*map(path, several)] for key, several in made.items()}
        end, whole, begun = time.monotonic() + seconds, False, time.time()
        try:
            targets = [file for several in files.values() for file in several]
            whole = self.workflow.make(targets, seconds) == 0
        finally:
            made_since = -math.inf if whole else begun
            done = {
                key
                for key, several in files.items()
                if all(_is_current(file, made_since) for file in several)
            }
            computed = [each for cell, each in piece.items() if _key(levels_of(cell)) in done]
            if computed:
                scores = read_scores(file for key in done for file in files[key])
                rows = join_networks(scores, grid.networks)
                _check_victims(rows, known, self.settings.data_dir)
                facts = conditions_of(computed, self.settings.results_dir)
                self._append(grid, _added(rows, known), facts)
        if time.monotonic() >= end:
            return []
        return [file for several in files.values() for file in several if not file.is_file()]

    def _made(
        self, grid: Grid, piece: Mapping[Cell, Sequence[Cell]], known: pd.DataFrame
    ) -> dict[Levels, list[Made]]:
        """Return the scores of cells, of controls that are recorded, and of truths that are not."""
        recorded, made = _networks_in(known), dict[Levels, list[Made]]()
        for cell in _controls(piece, known, grid):
            key = _key(levels_of(cell))
            made[key] = [*map(scores_of, _repeated(grid, cell, recorded[key]))]
        for cell, lacking in piece.items():
            key = _key(levels_of(cell))
            made[key] = [*made.get(key, ()), *map(scores_of, lacking)]
        attacked = [cell for cell in piece if cell.end == "attack"]
        truths = {cell.upto("defense") for cell in attacked} & {*grid.truths}
        for cell in truths:
            key = _key(levels_of_truth(cell))
            if key not in recorded:
                made[key] = [Made("score_truth", "scores", cell)]
        return made


def _is_current(file: Path, made_since: float) -> bool:
    """Return True unless scores may be outdated: made earlier, and by other code than now."""
    if not file.is_file():
        return False
    if file.stat().st_mtime >= made_since:
        return True
    try:
        return not provenance.changed_since(str(provenance.load(file.parent)["commit"]))
    except DamagedError:
        return False


def _key(levels: Mapping[str, str]) -> Levels:
    return tuple(levels[level] for level in CELL)


def _keys(table: pd.DataFrame) -> list[Levels]:
    """Return the cell of each row."""
    return list(table[CELL].itertuples(index=False, name=None))


def _without(table: pd.DataFrame, cells: set[Levels]) -> pd.DataFrame:
    """Return a table without the rows of some cells."""
    return table[pd.Series([key not in cells for key in _keys(table)], table.index, dtype=bool)]


def _cells_in(table: pd.DataFrame) -> set[Levels]:
    return set(_keys(table))


def _controls(cells: Iterable[Cell], known: pd.DataFrame, grid: Grid) -> list[Cell]:
    """Return recorded cells of blind whose clients have the samples of these cells."""
    there = _cells_in(known)
    blind = [
        cell
        for cell in grid.cells
        if cell.strings().get("attack") == BLIND and _key(levels_of(cell)) in there
    ]
    first = {_victims(cell): cell for cell in reversed(blind)}
    found = (first.get(_victims(cell)) for cell in cells)
    return list(dict.fromkeys(cell for cell in found if cell is not None))


def _victims(cell: Cell) -> Levels:
    strings = levels_of(cell)
    return tuple(strings[level] for level in VICTIM)


def _check_victims(computed: pd.DataFrame, known: pd.DataFrame, data_dir: Path) -> None:
    """Check that cells which are recorded have the recorded scores when computed again.

    Metrics of a whole batch are left out: time and memory are among them.

    Raises:
        ArtifactError: they differ, so the clients have other samples.
    """
    keys = [*CELL, "victim", "sample", "metric"]
    both = computed.merge(known[known["sample"].notna()], on=keys, suffixes=("", "_recorded"))
    ours, theirs = both["value"].to_numpy(), both["value_recorded"].to_numpy()
    equal = np.isclose(ours, theirs, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
    if not equal.all():
        place = both[~equal].iloc[0]
        raise ArtifactError(
            f"{'/'.join(place[CELL])}: {place['metric']} of client {place['victim']} is "
            f"{place['value']:.4g}, {place['value_recorded']:.4g} in the record: the clients have "
            f"other samples; use the data of the record (now {data_dir}) and its seed"
        )


def _repeated(grid: Grid, cell: Cell, numbers: Collection[int]) -> list[Cell]:
    """Return the repetitions of a cell on the networks of a grid with these numbers."""
    every = enumerate(cell.repetitions(grid.networks))
    return [one for number, one in every if number in numbers]


def _networks_in(table: pd.DataFrame) -> dict[Levels, set[int]]:
    """Return the networks whose victims each cell has; empty for other cells."""
    found: dict[Levels, set[int]] = defaultdict(set)
    for levels, numbers in table.groupby(CELL)["victim"]:
        key = tuple(map(str, levels))
        client = dict(zip(CELL, key, strict=True))["client"]
        found[key] = {*(numbers // (parse("client", client).victims if client else 1))}
    return found


def _added(computed: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with victims that the record lacks, with those that it has of them."""
    rows = [pd.MultiIndex.from_frame(table[[*CELL, "victim"]]) for table in (computed, known)]
    new = computed[~rows[0].isin(rows[1])]
    return pd.concat([_without(known, _cells_in(known) - _cells_in(new)), new])
