"""Files that jobs create and read, each identified by a stage, an output and a subject."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gleak.core.settings import Scale
from gleak.knowledge.base import Pretraining
from gleak.studies.cell import SCORED_BY, Cell
from gleak.studies.search.declaration import SpecSearch
from gleak.studies.study import Study

CAPTURED = "captured"


@dataclass(frozen=True)
class Shard:
    """A share of the victims of a cell, by its number from 1."""

    cell: Cell
    number: int
    count: int

    @property
    def wildcards(self) -> dict[str, Any]:
        return {**self.cell.strings(), "shard": self.number, "shards": self.count}


@dataclass(frozen=True)
class StudyPart:
    """A grid, figure or search of a study at one scale, by its wildcard and name, or the study."""

    study: Study
    scale: Scale
    wildcard: str = ""
    name: str = ""

    @property
    def wildcards(self) -> dict[str, Any]:
        own = {self.wildcard: self.name} if self.wildcard else {}
        return {"study": self.study.name, "scale": self.scale, **own}

    @property
    def search(self) -> SpecSearch:
        return self.study.search(self.name, self.scale)

    def __hash__(self) -> int:
        return hash((self.study.name, self.scale, self.wildcard, self.name))


@dataclass(frozen=True)
class CandidateDraw:
    """Candidates of membership inference, at most ``number`` for each victim of a cell."""

    cell: Cell
    number: int

    @property
    def wildcards(self) -> dict[str, Any]:
        return {**self.cell.strings(), "number": self.number}


Subject = Cell | Shard | CandidateDraw | Pretraining | StudyPart


@dataclass(frozen=True)
class Made:
    """A file that a stage creates: an output of its rule, about a subject."""

    rule: str
    output: str
    subject: Subject


Inputs = dict[str, Made | list[Made]]


def files_in(inputs: Inputs) -> list[Made]:
    parts = [[part] if isinstance(part, Made) else part for part in inputs.values()]
    return [made for part in parts for made in part]


def dataset_of(cell: Cell | Pretraining) -> Made:
    return Made("prepare_dataset", "dataset", Cell({"dataset": cell.dataset}))


def model_of(cell: Cell) -> Made:
    rule = "take_captured_model" if cell.training.name == CAPTURED else "train_model"
    return Made(rule, "model", cell.upto("training"))


def parameters_of(cell: Cell) -> Made:
    """Return the file with the parameters that are broadcast to a cell's clients."""
    if cell.crafting.broadcasts_model:
        return model_of(cell)
    return Made("craft_parameters", "parameters", cell.upto("crafting"))


def update_of(cell: Cell) -> Made:
    rule = "take_captured_update" if cell.client.name == CAPTURED else "simulate_clients"
    return Made(rule, "sent", cell.upto("defense"))


def truth_of(cell: Cell, output: str = "private") -> Made:
    """Return the file with the samples of a cell's clients, or one with a granted part of them."""
    rule = "take_captured_truth" if cell.client.name == CAPTURED else "simulate_clients"
    return Made(rule, output, cell.upto("defense"))


def knowledge_of(trainings: Iterable[Pretraining]) -> list[Made]:
    return [Made("train_knowledge", "knowledge", training) for training in trainings]


def reconstruction_of(cell: Cell, output: str = "reconstruction") -> Made:
    return Made("attack", output, cell)


def membership_of(cell: Cell) -> Made:
    return Made("infer_members", "membership", cell)


def audit_of(cell: Cell) -> Made:
    return Made("audit_privacy", "audit", cell)


def scores_of(cell: Cell) -> Made:
    return Made(SCORED_BY[cell.end_kind], "scores", cell)


def reads_of_attack(cell: Cell) -> Inputs:
    """Return the update, the broadcast parameters and the attack's grants, but not the truth.

    An attack that belongs to a crafting also reads the secret of the server that crafted the
    parameters. An attacker's knowledge was trained on public data.
    """
    secret = [Made("craft_parameters", "secret", cell.upto("crafting"))]
    return {
        "sent": update_of(cell),
        "parameters": parameters_of(cell),
        "granted": [truth_of(cell, f"granted/{grant}.h5") for grant in sorted(cell.attack.grants)],
        "secret": secret if cell.attack.crafting else [],
        "knowledge": knowledge_of(cell.pretrainings),
    }


def candidates_of(cell: Cell, output: str) -> Made:
    """Return the file with the candidates of a cell's attack, or the one that tells the members."""
    draw = CandidateDraw(cell.upto("defense"), cell.attack.candidates)
    return Made("draw_candidates", output, draw)


def reads_of_draw(draw: CandidateDraw) -> Inputs:
    return {"dataset": dataset_of(draw.cell), "private": truth_of(draw.cell)}


def reads_of_membership(cell: Cell) -> Inputs:
    """Return the update, the broadcast parameters and the candidates, but not who took part."""
    return {
        "sent": update_of(cell),
        "parameters": parameters_of(cell),
        "candidates": candidates_of(cell, "candidates"),
    }


def reads_of_member_scores(cell: Cell) -> Inputs:
    return {"members": candidates_of(cell, "members"), "membership": membership_of(cell)}


def reads_of_audit(cell: Cell) -> Inputs:
    """Return what canaries are made of: nothing for those that are no samples."""
    takes = cell.attack.takes_samples
    return {
        "dataset": [dataset_of(cell)] if takes else [],
        "parameters": [parameters_of(cell)] if takes else [],
    }


def shards_of(cell: Subject, count: int) -> list[Shard]:
    """Return non-empty shares of a cell's victims."""
    assert isinstance(cell, Cell)
    count = min(count, cell.client.victims)
    return [Shard(cell, number, count) for number in range(1, count + 1)]


def reads_of_score(cell: Cell) -> Inputs:
    return {
        "dataset": dataset_of(cell),
        "private": truth_of(cell),
        "reconstruction": reconstruction_of(cell),
        "provenance": reconstruction_of(cell, "provenance"),
        "knowledge": knowledge_of(cell.pretrainings),
        "evaluators": knowledge_of(cell.evaluators),
    }


def reads_of_clients(cell: Cell) -> Inputs:
    return {"dataset": dataset_of(cell), "parameters": parameters_of(cell)}


def reads_of_search(part: StudyPart) -> Inputs:
    cell = part.search.cell
    return {**reads_of_attack(cell), "private": truth_of(cell)}


def reads_of_table(part: StudyPart) -> Inputs:
    """Return the scores of every cell of a grid and of its controls, except refused cells."""
    grid = part.study.grid(part.name, part.scale)
    truths = [Made("score_truth", "scores", cell) for cell in grid.truths]
    return {"scores": [*map(scores_of, grid.repeated), *truths]}


def table_of(part: StudyPart, grid: str) -> Made:
    return Made("tabulate", "table", StudyPart(part.study, part.scale, "grid", grid))


def reads_of_figure(part: StudyPart) -> Inputs:
    """Return the tables of a figure's grids, its images, and knowledge whose losses it plots."""
    spec, shown = part.study.figure(part.name), part.study.shown(part.name, part.scale)
    images = [*map(reconstruction_of, shown), *map(truth_of, shown)]
    return {
        "tables": [table_of(part, grid) for grid in spec.grids],
        "images": list(dict.fromkeys(images)),
        "trained": knowledge_of(spec.trainings(part.scale)),
    }


def reads_of_verdicts(part: StudyPart) -> Inputs:
    grids = [part.study.grid(name, part.scale) for name in part.study.grids]
    return {
        "tables": [table_of(part, grid) for grid in part.study.grids],
        "datasets": datasets_of_victims(cell for grid in grids for cell in grid.cells),
    }


def datasets_of_victims(cells: Iterable[Cell]) -> list[Made]:
    """Return the datasets that victims are drawn from and whose specs do not tell their sizes."""
    drawn = (c for c in cells if "client" in c.specs and c.client.name != CAPTURED)
    read = (c for c in drawn if c.end_kind != "audit" or c.attack.takes_samples)
    return list(dict.fromkeys(dataset_of(c) for c in read if c.dataset.sizes is None))
