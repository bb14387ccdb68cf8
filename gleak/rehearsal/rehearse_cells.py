"""Rehearsal of the cells of studies: which stages would fail on a GPU, and their memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import OutOfMemoryError

from gleak.core.errors import GleakError
from gleak.core.spec import Spec
from gleak.data.base import DatasetSpec
from gleak.knowledge.base import Pretraining
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
class Outcome:
    """Rehearsal of one stage, or of all stages of a cell.

    Args:
        stage: that failed, or that uses most memory.
        bytes: largest memory of the GPU.
        fault: error of the stage; empty if it ran.
    """

    stage: str
    bytes: int = 0
    fault: str = ""


@dataclass(frozen=True)
class RehearsedStage:
    """One stage of a cell.

    Args:
        name: of the stage, for reports.
        key: what its computations depend on.
        run: rehearses it.
    """

    name: str
    key: Hashable
    run: Callable[[], None]


@dataclass(frozen=True)
class GridReport:
    """Rehearsal of the cells of a grid.

    Args:
        study: name of the study.
        grid: name of the grid.
        refused: number of cells that are refused from their specs.
        outcomes: of every cell.
    """

    study: str
    grid: str
    refused: int
    outcomes: dict[Cell, Outcome]

    @property
    def failed(self) -> dict[Cell, Outcome]:
        """Cells with a stage that failed."""
        return {cell: found for cell, found in self.outcomes.items() if found.fault}


@dataclass
class Rehearsal:
    """Rehearses cells, stages with equal computations once.

    Args:
        capacity: memory of the GPU in bytes.
        data_dir: the user's data folder, for the number of classes.
    """

    capacity: int
    data_dir: Path
    _known: dict[Hashable, Outcome] = field(default_factory=dict)
    _verified: dict[Hashable, dict[str, Any]] = field(default_factory=dict)

    def grid(self, study: str, grid: Grid) -> GridReport:
        """Rehearse all cells of a grid."""
        outcomes = {cell: self.cell(cell) for cell in grid.cells}
        return GridReport(study, grid.name, len(grid.refused), outcomes)

    def cell(self, cell: Cell) -> Outcome:
        """Rehearse the stages of a cell until one fails; returns that one, or the largest."""
        largest = Outcome("none")
        for stage in self._stages(cell):
            found = self._once(stage)
            if found.fault:
                return found
            largest = max(largest, found, key=lambda each: each.bytes)
        return largest

    def _once(self, stage: RehearsedStage) -> Outcome:
        key = (stage.name, stage.key)
        if key not in self._known:
            self._known[key] = self._run(stage)
        return self._known[key]

    def _run(self, stage: RehearsedStage) -> Outcome:
        fault = ""
        with VirtualGPU(self.capacity) as gpu:
            try:
                stage.run()
            except Exception as error:  # a user's plug-in may raise errors of any kind
                fault = _describe(error)
            if gpu.fault:
                fault = str(gpu.fault)
        return Outcome(stage.name, gpu.peak, fault)

    def _stages(self, cell: Cell) -> Iterator[RehearsedStage]:
        classes = self._classes(cell.dataset)
        network = (cell.model, cell.dataset.shape, classes)
        yield RehearsedStage("model", network, partial(rehearse_model, cell, classes))
        if "training" in cell.specs:
            trained = cell.upto("training")
            yield RehearsedStage("training", trained, partial(rehearse_training, cell, classes))
        for each in (*cell.pretrainings, *cell.evaluators):
            yield self._knowledge(each)
        if "defense" in cell.specs:
            key = (network, cell.client, cell.defense)
            yield RehearsedStage("client", key, partial(rehearse_client, cell, classes))
        if "attack" in cell.specs and cell.attack.uses_gpu:
            yield self._attack(cell, classes, network)

    def _knowledge(self, pretraining: Pretraining) -> RehearsedStage:
        classes = self._classes(pretraining.dataset)
        return RehearsedStage(
            "knowledge", pretraining, partial(rehearse_knowledge, pretraining, classes)
        )

    def _attack(self, cell: Cell, classes: int, network: Hashable) -> RehearsedStage:
        method = (network, cell.client.setting(), cell.crafting)
        verified = self._verified.setdefault(method, {})
        key = (network, cell.crafting, cell.client, cell.defense, _without_budget(cell.attack))
        return RehearsedStage("attack", key, partial(rehearse_attack, cell, classes, verified))

    def _classes(self, dataset: DatasetSpec) -> int:
        return dataset.classes_in(self.data_dir) or ASSUMED_CLASSES


def _without_budget(spec: Spec) -> Spec:
    """Return a spec with its own budget fields at their defaults."""
    fields = type(spec).model_fields
    return spec.model_copy(update={key: fields[key].default for key in spec.budget_fields})


def _describe(error: Exception) -> str:
    """Return an error as one line."""
    text = " ".join(str(error).split())
    if isinstance(error, OutOfMemoryError):
        return f"{text}; use shards, fewer victims or a smaller batch"
    return text if isinstance(error, GleakError) else f"{type(error).__name__}: {text}"
