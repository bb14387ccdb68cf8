"""Rehearsal of the cells of studies: which stages would fail on a GPU, and their memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import OutOfMemoryError

from gleak.core.errors import GleakError
from gleak.data.base import DatasetSpec
from gleak.rehearsal.rehearsed_stages import (
    rehearse_attack,
    rehearse_client,
    rehearse_knowledge,
    rehearse_model,
    rehearse_training,
)
from gleak.runtime.virtual_gpu import VirtualGPU
from gleak.studies.cell import Cell
from gleak.studies.estimate import ASSUMED_CLASSES
from gleak.studies.grid import Grid


@dataclass(frozen=True)
class RehearsalOutcome:
    """The stage of a cell that failed, with its error, or that uses most memory of the GPU."""

    stage: str
    bytes: int = 0
    fault: str = ""


@dataclass(frozen=True)
class RehearsedStage:
    """One stage of a cell; the key has all that its computations depend on."""

    name: str
    key: Hashable
    run: Callable[[], None]


@dataclass(frozen=True)
class GridReport:
    """Rehearsal of the cells of a grid, beside the number of those refused from their specs."""

    study: str
    grid: str
    refused: int
    outcomes: dict[Cell, RehearsalOutcome]

    @property
    def failed(self) -> dict[Cell, RehearsalOutcome]:
        return {cell: outcome for cell, outcome in self.outcomes.items() if outcome.fault}


@dataclass
class Rehearsal:
    """Rehearses cells on a GPU with a capacity in bytes, stages with equal computations once."""

    capacity: int
    data_dir: Path
    _known: dict[Hashable, RehearsalOutcome] = field(default_factory=dict)
    _verified: dict[Hashable, dict[str, Any]] = field(default_factory=dict)

    def grid(self, study: str, grid: Grid) -> GridReport:
        outcomes = {cell: self.cell(cell) for cell in grid.cells}
        return GridReport(study, grid.name, len(grid.refused), outcomes)

    def cell(self, cell: Cell) -> RehearsalOutcome:
        """Rehearse the stages of a cell until one fails; returns that one, or the largest."""
        largest = RehearsalOutcome("none")
        for stage in self._stages(cell):
            key = (stage.name, stage.key)
            if key not in self._known:
                self._known[key] = self._run(stage)
            outcome = self._known[key]
            if outcome.fault:
                return outcome
            largest = max(largest, outcome, key=lambda each: each.bytes)
        return largest

    def _run(self, stage: RehearsedStage) -> RehearsalOutcome:
        fault = ""
        with VirtualGPU(self.capacity) as gpu:
            try:
                stage.run()
            except Exception as error:  # a user's plug-in may raise errors of any kind
                fault = _describe(error)
            if gpu.fault:
                fault = str(gpu.fault)
        return RehearsalOutcome(stage.name, gpu.peak, fault)

    def _stages(self, cell: Cell) -> Iterator[RehearsedStage]:
        classes = self._classes(cell.dataset)
        network = (cell.model, cell.dataset.shape, classes)
        yield RehearsedStage("model", network, partial(rehearse_model, cell, classes))
        if "training" in cell.specs:
            trained = cell.upto("training")
            yield RehearsedStage("training", trained, partial(rehearse_training, cell, classes))
        for pretraining in (*cell.pretrainings, *cell.evaluators):
            run = partial(rehearse_knowledge, pretraining, self._classes(pretraining.dataset))
            yield RehearsedStage("knowledge", pretraining, run)
        if "defense" in cell.specs:
            computed = (network, cell.client, cell.defense)
            yield RehearsedStage("client", computed, partial(rehearse_client, cell, classes))
        if "attack" in cell.specs and cell.attack.uses_gpu:
            method = (network, cell.client.setting(), cell.crafting)
            verified = self._verified.setdefault(method, {})
            attack, fields = cell.attack, type(cell.attack).model_fields
            budget = {key: fields[key].default for key in attack.budget_fields}
            same = attack.model_copy(update=budget)  # one step is rehearsed, whatever the budget
            key = (network, cell.crafting, cell.client, cell.defense, same)
            yield RehearsedStage("attack", key, partial(rehearse_attack, cell, classes, verified))

    def _classes(self, dataset: DatasetSpec) -> int:
        return dataset.classes_in(self.data_dir) or ASSUMED_CLASSES


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, OutOfMemoryError):
        return f"{text}; use shards, fewer victims or a smaller batch"
    return text if isinstance(error, GleakError) else f"{type(error).__name__}: {text}"
