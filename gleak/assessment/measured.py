"""Tables and artifacts of the run of an assessment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.membership import Members
from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.artifacts.update import Update
from gleak.assessment.findings import RefusedCell
from gleak.assessment.generated_study import DEPLOYED
from gleak.assessment.label_guess import label_guess
from gleak.core.registry import parse
from gleak.core.settings import Scale
from gleak.figures.record_files import Conditions
from gleak.figures.recorded import LAST_MADE, conditions_of
from gleak.figures.statistics import records, refusals, select
from gleak.metrics.reconstruction.assignment import match_samples
from gleak.metrics.score_table import LEVEL_COLUMNS, read_scores
from gleak.runtime import provenance
from gleak.studies import stage_files
from gleak.studies.axis_labels import BLIND
from gleak.studies.cell import TRUTH, Cell
from gleak.studies.stage_files import Made, StudyPart, reconstruction_of
from gleak.studies.stages import path_of
from gleak.studies.study import Study


class SamplePair(NamedTuple):
    """A true sample and what an attack recovered of it, Shape (*shape), values in [0, 1]."""

    truth: np.ndarray
    found: np.ndarray


@dataclass(frozen=True)
class Measured:
    """Results of the study of an assessment.

    Args:
        study: the generated study, without cells that the user's network does not fit.
        scale: of the run.
        results: folder of all outputs.
        unscored: attacked cells of captures without true samples.
    """

    study: Study
    scale: Scale
    results: Path
    unscored: tuple[Cell, ...] = ()

    @property
    def targets(self) -> list[Path]:
        """Return the tables of all grids, and reconstructions that nothing scores."""
        tables = [self._table(name) for name in self.study.grids]
        return [self._path(made) for made in [*tables, *map(reconstruction_of, self.unscored)]]

    def reconstruction(self, cell: Cell) -> Reconstruction:
        """Return what an attack recovered."""
        return Reconstruction.read(self._path(reconstruction_of(cell)))

    def _table(self, grid: str) -> Made:
        return stage_files.table_of(StudyPart(self.study, self.scale), grid)

    def _path(self, made: Made) -> Path:
        return path_of(made, self.results)

    def scores(self, grid: str) -> pd.DataFrame:
        """Return the scores of a grid; of a grid that the study does not have, no rows."""
        return read_scores([self._path(self._table(grid))] if grid in self.study.grids else [])

    def refused(self, grid: str, **levels: str) -> list[RefusedCell]:
        """Return the attacked cells with these specs that were refused before or in a job."""
        rows = records(refusals(select(self.scores(grid), levels)).reset_index())
        return [
            RefusedCell(
                cell="/".join(filter(None, map(row.get, LEVEL_COLUMNS))), reason=row["reason"]
            )
            for row in rows
            if row["attack"] not in (BLIND, TRUTH)
        ]

    def cells(self, grid: str) -> list[Cell]:
        """Return the computed cells of a grid, controls left out."""
        if grid not in self.study.grids:
            return []
        refused = set(refusals(self.scores(grid)).index)
        return [
            cell
            for cell in self.study.grid(grid, self.scale).cells
            if cell.strings().get("attack") != BLIND
            and tuple(cell.strings().get(level, "") for level in LEVEL_COLUMNS) not in refused
        ]

    def kilobytes(self, cell: Cell) -> float:
        """Return the size of one client's update as sent, in 1000 bytes, before any coding."""
        sent = Private.read(self._path(stage_files.truth_of(cell))).sent_bytes
        if sent is not None:
            return float(np.mean(sent)) / 1000
        update = Update.read(self._path(stage_files.update_of(cell)))
        size = sum(encoded.bits for encoded in update.update.values()) / 8
        return size / update.victims / 1000

    def members(self, cell: Cell) -> np.ndarray:
        """Return which of each client's candidates took part, Shape (V, K)."""
        return Members.read(self._path(stage_files.candidates_of(cell, "members"))).member

    def pair(self, cell: Cell, victim: int, sample: int) -> SamplePair:
        """Return a true sample of a cell beside what was assigned to it."""
        chosen = slice(victim, victim + 1)
        private = Private.read(self._path(stage_files.truth_of(cell)), victims=chosen)
        found = Reconstruction.read(self._path(reconstruction_of(cell)), victims=chosen)
        place = match_samples(private, found)[0, sample]
        return SamplePair(private.inputs[0, sample], found.inputs[0, place])

    def guess(self, cell: Cell, victim: int, sample: int) -> np.ndarray:
        """Return what the control blind, which does not use the update, gives for a true sample."""
        honest, blind = parse("crafting", "honest"), parse("attack", BLIND)
        control = Cell({**cell.specs, "crafting": honest, "attack": blind})
        return self.pair(control, victim, sample).found

    def dataset(self, cell: Cell) -> Dataset:
        """Return the samples of both splits."""
        return Dataset.read(self._path(stage_files.dataset_of(cell)))

    @cached_property
    def label_guess(self) -> float:
        """Share of a client's labels that a guess names; 0 if nothing was attacked."""
        attacked = self.cells(DEPLOYED)
        if not attacked:
            return 0.0
        labels = self.dataset(attacked[0]).train_labels
        return label_guess(labels, attacked[0].client) if len(labels) else 0.0

    @cached_property
    def conditions(self) -> Conditions:
        """Summary of the provenance of all attacks and audits."""
        return conditions_of([[cell] for cell in self._every_cell], self.results)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all attacks, audits and trainings of grids."""
        made = [LAST_MADE[cell.end_kind](cell) for cell in self._every_cell]
        return sum(provenance.load(self._path(file).parent)["cpu_seconds"] for file in made)

    @property
    def _every_cell(self) -> list[Cell]:
        every = [cell for name in self.study.grids for cell in self.cells(name)]
        return list(dict.fromkeys(every))
